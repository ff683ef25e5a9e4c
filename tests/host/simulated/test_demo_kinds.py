"""The demo of kinds that create objects, on simulated nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from commands.demo import showkinds
from commands.demo.stage import Scene
from sandbox import detached, stages
from sandbox.doctor import webhooks
from sandbox.options import TOGETHER
from sandbox.state import State
from tests.support import servers
from tests.support.running import eventually
from windowbox.clients.kubernetes import kube

OPTIONS = {**TOGETHER, "admits": 1, "garden_admits": 1, "simulated_nodes": 2}


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, State]]:
    servers.need(*stages.PROGRAMS, *stages.SIMULATED_PROGRAMS)
    folder = tmp_path_factory.mktemp("demo") / "kinds"
    try:
        yield folder, detached.up(folder, OPTIONS)
    finally:
        detached.down(folder, wipe=True)


def shown(sandbox: tuple[Path, State], capsys: pytest.CaptureFixture[str]) -> str:
    showkinds.show_owners(Scene(*sandbox))
    return capsys.readouterr().out


def test_the_demo_of_kinds_cleans_up_and_repeats(
    sandbox: tuple[Path, State], capsys: pytest.CaptureFixture[str]
) -> None:
    for said in (shown(sandbox, capsys), shown(sandbox, capsys)):
        assert "Infrastructure shoot--demo--show/one: Succeeded after" in said
        assert "Namespace infra-shoot--demo--show" in said
        assert "NetworkPolicy provider-local-deny-all deleted by hand: back after" in said
        assert "Bastion shoot--demo--show/one: Succeeded, at 127." in said
        assert "its SSH server answers node=simulated-" in said
        assert "Service bastion-one deleted by hand: back after" in said
        for deleted in ("Bastion", "Infrastructure"):
            assert re.search(rf"Deleting {deleted} shoot--demo--show/one\n      gone after", said)
        assert said.rstrip().endswith("nothing of it is left")


def test_the_demo_of_records_asks_the_name_server(
    sandbox: tuple[Path, State], capsys: pytest.CaptureFixture[str]
) -> None:
    """Its processes have rights enough, and no more: none has ended, or was refused anything."""
    folder, state = sandbox
    showkinds.show_records(Scene(*sandbox))
    first = capsys.readouterr().out
    assert re.search(r"created .* → Succeeded .* → dig: 172\.18\.255\.224 ", first)
    showkinds.show_records(Scene(*sandbox))
    assert "was there already, Succeeded → dig: 172.18.255.224" in capsys.readouterr().out
    assert {name: child.restarts for name, child in state.children.items() if child.restarts} == {}
    assert "forbid" not in (folder / "logs" / "runner-1.log").read_text().lower()


def test_the_demo_of_webhooks_shows_what_was_stored(
    sandbox: tuple[Path, State], capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        showkinds.show_webhook(Scene(*sandbox))
        assert "asked for failSwapOn: true, stored failSwapOn: false" in capsys.readouterr().out


async def test_doctor_finds_both_processes_that_answer_webhooks(sandbox: tuple[Path, State]) -> None:
    folder, state = sandbox

    async def verdicts() -> list[tuple[str, str]]:
        return [(one.what.rpartition("-extension-")[2], one.verdict) async for one in webhooks.findings(seed)]

    async def both() -> bool:
        found = await verdicts()
        return found == [("provider-local", "ok"), ("admission-local", "ok"), ("admission-local", "ok")]

    async with kube.from_file(Path(stages.variables(folder, state)["KUBECONFIG"])) as seed:
        await eventually(both, 60)
