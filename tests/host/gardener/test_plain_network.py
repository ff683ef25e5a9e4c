"""The network of Pods across machines, between two network namespaces."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.nodes import iproute
from tests.support.running import eventually
from tools.gardener.machines import network

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("nft"), reason="needs root and nftables: make setup"
)

_MACHINES = {"one": ("192.0.2.1", "10.99.1.0/24"), "two": ("192.0.2.2", "10.99.2.0/24")}
_KUBECTL = """\
#!/bin/sh
# Answers as kubectl does that watches the Nodes.
echo 'ADDED|late||192.0.2.9'
echo 'ADDED|two|10.99.2.0/24|192.0.2.2 2001:db8::2'
echo 'ADDED|one|10.99.1.0/24|192.0.2.1'
exec sleep 60
"""


class Machines:
    """Two namespaces with a link between them, and the program that runs in both."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._mark = f"wbnet{os.getpid() % 10000}"
        self._running: list[subprocess.Popen[bytes]] = []

    def open(self) -> None:
        for name in _MACHINES:
            iproute.run("ip", "netns", "add", self._namespace(name))
        one, two = map(self._namespace, _MACHINES)
        iproute.run(
            "ip", "-n", one, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", two
        )
        (self.folder / "kubectl").write_text(_KUBECTL)
        (self.folder / "kubectl").chmod(0o755)
        path = f"{self.folder}:{os.environ['PATH']}"
        for name, (address, pods) in _MACHINES.items():
            self.ip(name, "addr", "add", f"{address}/24", "dev", "eth0")
            # The plugin of CNI makes this bridge with the first Pod.
            self.ip(name, "link", "add", "cni0", "type", "bridge")
            self.ip(name, "addr", "add", pods.replace(".0/", ".1/"), "dev", "cni0")
            for link in ("lo", "eth0", "cni0"):
                self.ip(name, "link", "set", link, "up")
            (self.folder / name).mkdir()
            program = ("bash", network.SCRIPT, self.folder / name)
            command = self.inside(name, "setpriv", "--pdeathsig", "KILL", *program)
            given = {"PATH": path, "NODE_NAME": name}
            self._running.append(
                subprocess.Popen(command, env=given, stdout=sys.stderr, start_new_session=True)
            )

    def close(self) -> None:
        for process in self._running:
            os.killpg(process.pid, 9)
            process.wait()
        for name in _MACHINES:
            subprocess.run(["ip", "netns", "del", self._namespace(name)], timeout=20, check=False)

    def inside(self, name: str, *command: str | Path) -> list[str]:
        return ["nsenter", f"--net=/run/netns/{self._namespace(name)}", *map(str, command)]

    def ip(self, name: str, *arguments: str) -> None:
        iproute.run("ip", "-n", self._namespace(name), *arguments)

    def reaches(self, name: str, source: str, target: str) -> bool:
        done = subprocess.run(
            self.inside(name, "busybox", "ping", "-c1", "-W1", "-I", source, target),
            capture_output=True, timeout=20, check=False,
        )  # fmt: skip
        return done.returncode == 0

    def _namespace(self, name: str) -> str:
        return f"{self._mark}-{name}"


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    with contextlib.closing(Machines(tmp_path)) as made:
        made.open()
        yield made


async def test_pods_of_two_machines_reach_each_other(machines: Machines) -> None:
    assert await eventually(lambda: machines.reaches("one", "10.99.1.1", "10.99.2.1"))
    assert await eventually(lambda: machines.reaches("two", "10.99.2.1", "10.99.1.1"))

    for name, (_, pods) in _MACHINES.items():
        assert pods in (machines.folder / name / "10-plain-network.conflist").read_text()


async def test_what_pods_send_elsewhere_has_the_address_of_their_machine(machines: Machines) -> None:
    """Nobody else knows a way back to Pods."""
    assert await eventually(lambda: machines.reaches("one", "10.99.1.1", "192.0.2.2"))
