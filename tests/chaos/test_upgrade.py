"""A rolling upgrade from the release before, and back, while records come and go: nothing is lost.

`CHAOS_PREVIOUS` names another commit or tag to upgrade from.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from bus.transport.connection import connected
from sandbox import processes
from sandbox.servers import zoneserver
from tests.chaos.accounts import transferred
from tests.chaos.converging import Journal, settled, waiting
from tests.chaos.load import Load, unsettled
from tests.support import previous as previous_release
from tests.support import roles, servers, wheels
from tests.support.roles import RoleServer
from tests.support.running import eventually
from tests.support.servers import ControlPlane, NameServer
from windowbox.clients.kubernetes import kube

RECORDS = 60
PAUSE = 0.05
PATIENCE = 180
ROLES = {"watch": "watcher", "work": "worker", "patch": "patcher"}
HEAD = (sys.executable, "-m", "windowbox")


@dataclass
class Deployment:
    """One process of each role. As in a rolling update, the new one is ready before the old one ends."""

    plane: ControlPlane
    bus: RoleServer
    named: NameServer
    folder: Path
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    starts: int = 0

    async def roll(self, role: str, program: tuple[str, ...]) -> None:
        self.starts += 1
        port, name = processes.free_port(), f"{role}-{self.starts}"
        file = self.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(self._settings(role, port)))
        new = processes.start([*program, role, "--settings", str(file)], self.folder / f"{name}.log")
        old, self.running[role] = self.running.get(role), new
        try:
            await eventually(lambda: _ready(port, new), PATIENCE)
        finally:
            if old:
                old.terminate()
                assert await asyncio.to_thread(old.wait, 60) == 0

    def _settings(self, role: str, port: int) -> dict[str, object]:
        user = ROLES[role]
        assert self.named.key
        zone = {"name": self.named.zone, "servers": [self.named.address], "key": self.named.key.settings()}
        return {
            "nats": {"url": self.bus.url, "user": user, "password": self.bus.passwords[user]},
            "cluster": {"kubeconfig": str(self.plane.kubeconfigs[user])},
            "metrics": f"127.0.0.1:{port}",
            **({"dns": {"zones": [zone]}} if role == "work" else {}),
        }

    def end(self) -> None:
        for process in self.running.values():
            servers.end(process)


@pytest.fixture
def previous(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """The command of the release before, in an environment of its own."""
    sources = previous_release.extracted(tmp_path_factory.mktemp("sources"))
    built = tmp_path_factory.mktemp("built")
    return (str(wheels.installed(wheels.built(sources, built), tmp_path_factory.mktemp("environment"))),)


@pytest.fixture
def deployment(plane: ControlPlane, tmp_path: Path) -> Iterator[Deployment]:
    servers.need("named")
    folders = [tmp_path / name for name in ("bus", "named", "processes")]
    for folder in folders:
        folder.mkdir()
    with (
        roles.role_server(folders[0]) as bus,
        servers.name_server(folders[1], key=zoneserver.new_key()) as named,
    ):
        made = Deployment(plane, bus, named, folders[2])
        try:
            yield made
        finally:
            made.end()


@pytest.mark.long
@pytest.mark.timeout(1200)
async def test_an_upgrade_and_the_way_back_lose_nothing_under_load(
    deployment: Deployment, previous: tuple[str, ...]
) -> None:
    for role in ROLES:
        await deployment.roll(role, previous)
    access, done = deployment.bus.access("operator"), asyncio.Event()
    journal = Journal(access)
    async with kube.from_file(deployment.plane.kubeconfig) as api:
        load = Load(api, random.randrange(10**6), RECORDS)
        await load.run(1)
        async with asyncio.TaskGroup() as group:
            group.create_task(load.go_on(done, PAUSE))
            for program in (HEAD, previous):
                for role in ROLES:
                    await deployment.roll(role, program)
                await journal.save()
            done.set()
        async with connected(access) as bus:
            problems = await settled(PATIENCE, lambda: unsettled(api, load.wanted), lambda: waiting(bus))
    await journal.save()
    assert not problems, "\n".join(problems)
    found = transferred(deployment.named.address)
    resolved = {name: values for (name, kind), values in found.items() if kind == "A" and ".chaos." in name}
    assert resolved == {name: frozenset({address}) for name, address in load.names().items()}
    assert journal.overlaps() == []
    assert len({run.process for run in journal.runs.values() if run.pool == "dnsrecord"}) == 3


async def _ready(port: int, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "a process has ended"
    try:
        return await asyncio.to_thread(_asked, f"http://127.0.0.1:{port}/readyz")
    except (OSError, urllib.error.HTTPError):
        return False


def _asked(url: str) -> bool:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return bool(answer.status == 200)
