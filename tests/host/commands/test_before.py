"""What `windowbox doctor --before` foretells happens: without root, in a container, with nothing.

Each machine is a set of namespaces of this one, in which nothing but loopback is reached.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox import stages
from sandbox.nodes import hostresources
from sandbox.programs import binaries
from tests.support import servers
from tests.support.cases import cases

_ROOT = Path(__file__).parents[3]
_USER = (
    "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
    # The environment of the tests may be in a folder of root.
    "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search",
)  # fmt: skip
_READ_ONLY = "for folder in /sys/fs/cgroup /sys/fs/cgroup/*/; do mount -o remount,bind,ro $folder; done"
_SILENT = "ip link add away type dummy; ip link set away up; ip address add 192.0.2.2/24 dev away"
"""What is sent to 192.0.2.1 is lost."""


class Machine:
    """A machine like this one, except for what `changes` does."""

    def __init__(self, folder: Path, changes: str = "true", user: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self._changes, self._user = changes, user
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("WINDOWBOX_")},
            "WINDOWBOX_CACHE": str(binaries.cache()), "WINDOWBOX_HOME": str(folder / "sandboxes"),
        }  # fmt: skip

    def __call__(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run `windowbox`, and what it starts until it has ended."""
        return self.run("windowbox", [[*arguments]], **environment)[0]

    def run(
        self, module: str, commands: list[list[str]], **environment: str
    ) -> list[subprocess.CompletedProcess[str]]:
        """Run several commands of one machine, which ends with the last of them."""
        script = f'ip link set lo up; mount -t tmpfs none /run; {self._changes}; exec "$@"'
        several = [sys.executable, "-c", _SEVERAL, module, json.dumps(commands)]
        answer = subprocess.run(
            ["unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child=SIGKILL",
             "sh", "-c", script, "sh", *self._user, *several],
            cwd=_ROOT, env={**self._environment, **environment},
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert answer.returncode == 0, answer.stderr
        return [subprocess.CompletedProcess([], *one) for one in json.loads(answer.stdout)]


_SEVERAL = """
import json, subprocess, sys
done = [
    subprocess.run([sys.executable, "-m", sys.argv[1], *one], capture_output=True, text=True)
    for one in json.loads(sys.argv[2])
]
print(json.dumps([[one.returncode, one.stdout, one.stderr] for one in done]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    if reason := hostresources.unsuited() or servers.missing(*stages.PROGRAMS):
        pytest.skip(f"needs {reason}")
    open_to_all = Path(f"/tmp/windowbox-before-{os.getpid()}")
    open_to_all.mkdir(mode=0o777)
    open_to_all.chmod(0o777)
    try:
        yield open_to_all
    finally:
        shutil.rmtree(open_to_all)


def foretold(machine: Machine, **environment: str) -> tuple[int, dict[str, Any]]:
    answer = machine("doctor", "--before", "--output=json", **environment)
    return answer.returncode, json.loads(answer.stdout)


def topics(found: dict[str, Any]) -> dict[str, str]:
    return {one["what"]: one["said"] for one in found["findings"]}


def test_a_user_is_foretold_what_is_left_out(folder: Path) -> None:
    code, found = foretold(Machine(folder, user=_USER))
    assert code == 1
    assert {name for name, lacking in found["parts"].items() if lacking} == {"balancer", "bastion", "shoot"}
    assert "real nodes need" in found["parts"]["shoot"]
    assert found["parts"]["records"] == ""


@pytest.mark.long  # sandboxes without nodes are those of tests/host/simulated; see above for what is foretold
@cases(
    "changes user",
    ("user", "true", _USER),
    ("read-only-cgroups", _READ_ONLY, ()),
)
def test_a_sandbox_has_no_real_nodes_where_none_are_foretold(
    folder: Path, changes: str, user: tuple[str, ...]
) -> None:
    machine = Machine(folder, changes, user)
    code, found = foretold(machine)
    assert code == 1
    assert "real nodes need" in found["parts"]["shoot"]
    up, status, _ = machine.run("windowbox", [["up"], ["status", "--output=json"], ["down"]])
    assert up.returncode == 0, up.stdout + up.stderr
    reason = found["parts"]["shoot"].removeprefix("real nodes need ")
    assert up.stdout.startswith(f"Continuing without real nodes: they need {reason}")
    assert json.loads(status.stdout)["options"]["nodes"] == 0


def test_with_nothing_and_a_silent_name_server_all_is_compiled(folder: Path) -> None:
    resolv = folder / "resolv.conf"
    resolv.write_text("nameserver 192.0.2.1\n")
    machine = Machine(folder, f"{_SILENT}; mount --bind {resolv} /etc/resolv.conf")
    empty = {"WINDOWBOX_CACHE": str(folder / "cache"), "HOME": str(folder / "home"), "PATH": _path(folder)}
    before = sorted(folder.rglob("*"))
    code, found = foretold(machine, **empty)
    assert code == 0
    assert topics(found)["name servers"] == "192.0.2.1 is silent"
    assert "kube-apiserver" in topics(found)["programs"].partition("compiled")[2]
    assert found["seconds"]["records"] < found["seconds"]["everything"]
    assert sorted(folder.rglob("*")) == before, "nothing is made"


def _path(folder: Path) -> str:
    """The PATH without the programs that are compiled."""
    kept = [one for one in os.environ["PATH"].split(os.pathsep) if not Path(one, "etcd").exists()]
    return os.pathsep.join(kept)


def test_a_full_disk_ends_with_3(folder: Path) -> None:
    small = folder / "small"
    small.mkdir()
    machine = Machine(folder, f"mount -t tmpfs -o size=1m none {small}")
    code, found = foretold(machine, WINDOWBOX_HOME=str(small))
    assert code == 3
    assert str(small) in topics(found)["disk"]


@pytest.mark.long  # its parts are those of simulated/test_demo_kinds.py
def test_the_demo_of_a_user_leaves_out_what_is_foretold(folder: Path) -> None:
    machine = Machine(folder, user=_USER)
    _, found = foretold(machine)
    assert {name for name, lacking in found["parts"].items() if lacking} == {"balancer", "bastion", "shoot"}
    demo, _ = machine.run("windowbox", [["demo"], ["down"]])
    assert demo.returncode == 0, demo.stdout + demo.stderr
    first, _, rest = demo.stdout.partition("Sandbox 'default'")
    assert first.count("Left out: ") == 2
    assert found["parts"]["bastion"].partition(":")[0] in rest
    assert rest.count("Left out: ") == 2
    assert "stored failSwapOn: false" in rest
