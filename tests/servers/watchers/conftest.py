"""A watcher of many simulated clusters, and what it has announced of them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from bus import streams, subjects
from bus.clusters.clusters import clusters
from bus.clusters.registry import Member, Registry
from bus.leases.leases import Leases
from bus.messages import Announcement
from bus.transport.connection import Bus
from sandbox import files
from tests.support import loopback
from tests.support.apiservers import ApiServers, api_servers
from tests.support.running import eventually, running, soon
from watchers.mirror import Mirror
from watchers.watching import Watching
from windowbox.clients.kubernetes import kube
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Unreachable
from windowbox.models.refs import DNSRECORDS, NODES, RUNTIME, SERVICES, ObjectRef
from windowbox.settings.bussettings import Retention

KINDS = (DNSRECORDS, NODES, SERVICES)
PATIENCE = 90.0


def service(name: str, filler: str = "") -> dict[str, object]:
    return {"metadata": {"namespace": "default", "name": name}, "spec": {"filler": filler}}


@dataclass
class Watched:
    """A process that watches clusters, each with a Service `web`."""

    apis: ApiServers
    bus: Bus
    watching: Watching
    members: list[str]
    folder: Path

    @property
    def everywhere(self) -> list[str]:
        return [RUNTIME, *self.members]

    async def join(self, name: str) -> None:
        await self.watching.registry.join(Member(id=name, file=str(self.folder / f"{name}.kubeconfig")))

    async def leave(self, name: str) -> None:
        await self.watching.registry.leave(name)

    async def watches(self) -> None:
        """Wait until every kind of every cluster is watched."""

        async def look() -> bool:
            states = self.watching.states
            there = (f"{cluster}/{kind.id}" for cluster in self.everywhere for kind in KINDS)
            return all(states.get(one) == "watching" for one in there)

        await eventually(look, PATIENCE)

    def put(self, cluster: str, name: str, filler: str = "") -> None:
        """Create or change a Service."""
        self.apis.put(cluster, SERVICES, service(name, filler))

    async def add(self, name: str) -> None:
        """Create a Service of this name in each cluster, and wait until the bus tells of all."""
        for cluster in self.everywhere:
            self.put(cluster, name)
        for cluster in self.everywhere:
            await self.tells(cluster, name, "ADDED")

    async def has_watches(self, cluster: str, number: int) -> None:
        await eventually(lambda: self.apis.watches[cluster] == number, PATIENCE)

    async def tells_of_more(self, cluster: str) -> None:
        """Create a Service, and wait until the bus tells of it."""
        self.put(cluster, "more")
        await self.tells(cluster, "more", "ADDED", "LISTED")

    async def tells(self, cluster: str, name: str, *operations: str) -> None:
        """Wait until the last that the bus has heard of the Service is one of these."""
        subject = subjects.seen(ObjectRef(cluster, SERVICES.id, "default", name))

        async def look() -> bool:
            try:
                stored = await self.bus.last(streams.OBJECTS, subject)
            except Unreachable:
                return False
            return stored is not None and Announcement(stored).operation in operations

        await eventually(look, PATIENCE)


@contextlib.asynccontextmanager
async def listed(mirror: Mirror) -> AsyncIterator[None]:
    """Mirror as long as the body lasts, which begins after the first listing."""
    async with running(mirror.run()):
        await soon(mirror.listed.wait())
        yield


@pytest.fixture
def bus(nats_bus: Bus) -> Bus:
    """A connection to a server that may be restarted."""
    return nats_bus


@pytest_asyncio.fixture
async def apis() -> AsyncIterator[ApiServers]:
    async with api_servers() as servers:
        yield servers


@pytest_asyncio.fixture
async def tenant(apis: ApiServers) -> AsyncIterator[Kube]:
    """A client of the cluster `tenant`."""
    async with kube.from_text(apis.kubeconfig("tenant").encode(), "tenant", loopback.EGRESS) as client:
        yield client


@contextlib.asynccontextmanager
async def watched(
    bus: Bus,
    apis: ApiServers,
    folder: Path,
    members: int,
    retention: Retention = streams.DEFAULT,
    share: float = 1.0,
) -> AsyncIterator[Watched]:
    """Watch the runtime cluster and so many others as long as the body lasts."""
    await streams.ensure(bus, 1, retention)
    names = [f"shoot--{number}" for number in range(members)]
    paths = {name: folder / f"{name}.kubeconfig" for name in [RUNTIME, *names]}
    for name, path in paths.items():
        files.write_private(path, apis.kubeconfig(name))
        apis.put(name, SERVICES, service("web"))
    registry, leases = Registry(bus), Leases(bus, "one", "watch")
    async with (
        kube.from_file(paths[RUNTIME]) as runtime,
        clusters(runtime, registry, loopback.SETTINGS, paths) as opened,
    ):
        kinds = tuple(kind.id for kind in KINDS)
        watching = Watching(bus, leases, opened, registry, kinds, retention=retention, share=share)
        async with running(leases.run(), registry.run(), registry.keep(), watching.run()):
            made = Watched(apis, bus, watching, names, folder)
            for name in names:
                await made.join(name)
            await made.watches()
            yield made
