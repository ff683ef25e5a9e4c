"""`windowbox up` and its companions, from the outside."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import nats
import pytest

from sandbox import processes
from sandbox import state as states
from sandbox.nodes import routes
from sandbox.processes import ProcessId
from sandbox.servers import ranges
from sandbox.state import State
from tests.support.commandline import CommandLine


@pytest.fixture(autouse=True)
def _up(windowbox: CommandLine) -> None:
    windowbox.up()


def test_up_twice_starts_nothing_new(windowbox: CommandLine) -> None:
    before = _state(windowbox)
    said = windowbox("up")
    assert "is running already" in said
    assert _processes(_state(windowbox)) == _processes(before)


def test_up_with_other_options_is_refused(windowbox: CommandLine) -> None:
    assert "other options" in windowbox("up", "--workers=3", expect=1)


@pytest.mark.long  # the last test here shows that nothing is left
def test_a_sandbox_starts_again_after_its_supervisor_was_killed(windowbox: CommandLine) -> None:
    before = _state(windowbox)
    windowbox.kill()
    assert "is not running" in windowbox("status", expect=3)
    windowbox("down")
    assert _has_routes(windowbox, False)
    windowbox.up()
    assert _state(windowbox).ready
    assert _state(windowbox).ports == before.ports
    assert _has_routes(windowbox, True)


def test_the_environment_leads_kubectl_to_the_cluster(windowbox: CommandLine) -> None:
    variables = json.loads(windowbox("env", "--output=json"))
    answer = subprocess.run(
        ["bash", "-c", f'eval "$({sys.executable} -m windowbox env)" && kubectl get namespaces -o name'],
        env=windowbox.environment(), capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert "namespace/kube-system" in answer.stdout.split()
    assert variables["KUBECONFIG"].startswith(str(windowbox.folder))


async def test_the_environment_leads_to_the_bus(windowbox: CommandLine) -> None:
    variables = json.loads(windowbox("env", "--output=json"))
    client = await nats.connect(
        variables["NATS_URL"], user=variables["NATS_USER"], password=variables["NATS_PASSWORD"]
    )
    await client.close()


def test_status_shows_processes_to_programs_and_people(windowbox: CommandLine) -> None:
    state = json.loads(windowbox("status", "--output=json"))
    assert state["children"]["named"]["condition"] == "ready"
    assert "kube-apiserver" in windowbox("status")


def test_doctor_finds_nothing_wrong_with_a_running_sandbox(windowbox: CommandLine) -> None:
    findings = json.loads(windowbox("doctor", "--output=json"))
    wrong = [finding for finding in findings if finding["verdict"] == "wrong"]
    assert wrong == []
    assert {"NATS", "rights of the watcher"} <= {finding["what"] for finding in findings}


@pytest.mark.parametrize(
    "role",
    ["worker", *(pytest.param(name, marks=pytest.mark.long) for name in ("watcher", "patcher", "runner"))],
)
def test_doctor_asks_little_of_a_role(windowbox: CommandLine, tmp_path: Path, role: str) -> None:
    password = json.loads((windowbox.folder / "nats" / "passwords.json").read_text())[role]
    url = json.loads(windowbox("env", "--output=json"))["NATS_URL"]
    settings = tmp_path / "settings.yaml"
    settings.write_text(
        f"nats: {{url: '{url}', user: {role}, password: '{password}'}}\n"
        f"cluster: {{kubeconfig: '{windowbox.folder / role}.kubeconfig'}}\n"
    )
    findings = json.loads(windowbox("doctor", "--output=json", f"--settings={settings}"))
    assert [finding for finding in findings if finding["verdict"] == "wrong"] == []
    rights = [finding["what"] for finding in findings if finding["what"].startswith("rights")]
    assert rights == [f"rights of the {role}"]


def test_logs_are_kept_for_each_process(windowbox: CommandLine) -> None:
    assert {"etcd", "named", "supervisor"} <= set(windowbox("logs").split())
    assert "running" in windowbox("logs", "named")
    assert "it has: " in windowbox("logs", "nobody", expect=3)


def test_up_names_what_blocks_it_and_whatever_ended_leaves_nothing(
    windowbox: CommandLine, tmp_path: Path
) -> None:
    """Last, as the sandbox ends: by `down`, and when its supervisor is killed."""
    before = _state(windowbox)
    assert _has_routes(windowbox, True)
    windowbox("down")
    assert _has_routes(windowbox, False)
    assert [p for p in _processes(before) if processes.alive(p)] == []
    assert "was not running" in windowbox("down")

    broken = tmp_path / "kube-apiserver"
    broken.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo Kubernetes v1.36.3 || { echo disk is full; exit 3; }\n'
    )
    broken.chmod(0o755)
    said = windowbox("up", "--nodes=0", expect=3, WINDOWBOX_BIN_KUBE_APISERVER=str(broken))
    assert "crashed (exit code 3)" in said
    assert "kube-apiserver said last: 'disk is full'" in said
    assert _state(windowbox).ports.items() >= before.ports.items()
    assert _has_routes(windowbox, True)
    windowbox.kill()
    assert "is not running" in windowbox("status", expect=3)
    windowbox("down")
    assert _has_routes(windowbox, False)


def _has_routes(windowbox: CommandLine, laid: bool) -> bool:
    """Whether all routes of its API server are there, or none is; only root may lay them."""
    networks = set(ranges.kept(windowbox.folder, []).networks)
    return not routes.possible() or networks & set(routes.known()) == (networks if laid else set())


def _state(windowbox: CommandLine) -> State:
    state = states.read(windowbox.folder)
    assert state is not None
    return state


def _processes(state: State) -> list[ProcessId]:
    found = [state.supervisor(), *(child.process() for child in state.children.values())]
    return [process for process in found if process]
