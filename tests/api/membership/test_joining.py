"""Clusters join and leave as their Namespaces say: on a real API server, over a real bus."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest_asyncio

from bus import streams, subjects
from bus.clusters.clusters import clusters
from bus.clusters.registry import Member, Registry
from bus.leases.leases import Leases
from bus.transport import consumers
from bus.transport.connection import Bus, connected
from tests.api.watchers.conftest import Records, in_namespace
from tests.api.watchers.test_watching import portable, store_kubeconfig
from tests.support import loopback
from tests.support.natsserver import NatsServer, made_anew
from tests.support.proxy import proxy
from tests.support.running import eventually, running
from tests.support.servers import ControlPlane
from watchers.watching import Watching
from windowbox.errors import Missing
from windowbox.models.refs import NAMESPACES, NODES, SERVICES, ObjectRef
from windowbox.settings.bussettings import Access
from windowbox.settings.clustersettings import JoinSettings
from workers.kinds.membership.clusterjoining import Joining

KUBECONFIG = "cluster.windowbox/kubeconfig"


@dataclass
class World:
    """A watcher, and the holder of the lease `join`."""

    bus: Bus
    registry: Registry
    watching: Watching
    records: Records

    @property
    def name(self) -> str:
        return self.records.namespace

    @property
    def member(self) -> Member:
        return self.registry.members[self.name]

    async def joins(self) -> Member:
        """Have it join by its annotation, and wait until it is served."""
        await self.annotate(kubeconfig="kubeconfig")
        await eventually(self.serves)
        return self.member

    async def annotate(self, **annotations: str | None) -> None:
        named = {f"cluster.windowbox/{key}": value for key, value in annotations.items()}
        await self.records.kube.merge(NAMESPACES, "", self.name, {"metadata": {"annotations": named}})

    def takes_part(self) -> bool:
        return self.name in self.registry.members

    def absent(self) -> bool:
        return self.name not in self.registry.members

    async def serves(self) -> bool:
        """Whether its Services are known on the bus."""
        listed = await self.bus.last(streams.OBJECTS, subjects.listed(self.name, SERVICES.id))
        return listed is not None

    async def left(self) -> bool:
        watched = any(place.startswith(f"{self.name}/") for place in self.watching.states)
        return not watched and not await on_the_bus(self.bus, self.name)


async def on_the_bus(bus: Bus, cluster: str) -> list[str]:
    """All that the bus holds of a cluster."""
    found = consumers.snapshot(bus, streams.OBJECTS, [subjects.seen_cluster(cluster)])
    return [stored.subject async for stored in found]


@pytest_asyncio.fixture
async def records(control_plane: ControlPlane) -> AsyncIterator[Records]:
    async with in_namespace(control_plane.kubeconfig) as made:
        await store_kubeconfig(made, portable(control_plane))
        yield made
        # All tests share the API server: windowbox of a later one must not have this cluster join.
        unset = dict.fromkeys(("cluster.windowbox/kubeconfig", "cluster.windowbox/machines"))
        with contextlib.suppress(Missing):
            await made.kube.merge(NAMESPACES, "", made.namespace, {"metadata": {"annotations": unset}})


@contextlib.asynccontextmanager
async def world(
    bus: Bus, records: Records, *, joining: bool = True, file: Path | None = None
) -> AsyncIterator[World]:
    """What makes clusters join. `file` is the kubeconfig of the one that the records belong to."""
    files = {records.namespace: file} if file else None
    registry, leases = Registry(bus), Leases(bus, "one", "work")
    join = Joining(bus, registry, JoinSettings())
    async with clusters(records.kube, registry, loopback.SETTINGS, files) as opened:
        watching = Watching(bus, leases, opened, registry, (NAMESPACES.id,))
        work = [leases.run(), registry.run(), registry.keep(), watching.run()]
        if joining:
            work.append(leases.while_held("join", join.run))
        async with running(*work):
            yield World(bus, registry, watching, records)


async def test_a_cluster_joins_by_annotation_and_leaves_nothing_behind(bus: Bus, records: Records) -> None:
    async with world(bus, records) as made:
        for _ in range(2):
            member = await made.joins()
            assert (member.kinds, member.origin) == ((SERVICES.id, NODES.id), "namespace")
            assert member.machines
            assert (member.machines.cluster, member.machines.namespace) == ("runtime", made.name)
            await made.annotate(kubeconfig=None)
            await eventually(made.absent)
            await eventually(made.left)


async def test_a_cluster_leaves_with_its_namespace(bus: Bus, records: Records) -> None:
    async with world(bus, records) as made:
        await made.annotate(kubeconfig="kubeconfig", machines="infra-of-it")
        await eventually(made.serves)
        assert made.member.machines
        assert made.member.machines.namespace == "infra-of-it"
        # Nobody takes its finalizer off here, so it is marked for deletion for ever.
        await records.kube.delete(NAMESPACES, "", made.name)
        await eventually(made.left)


async def test_a_member_registered_by_a_person_is_kept(
    bus: Bus, records: Records, control_plane: ControlPlane
) -> None:
    async with world(bus, records, file=control_plane.kubeconfig) as made:
        theirs = Member(id=made.name, file=str(control_plane.kubeconfig), kinds=(NODES.id,))
        await made.registry.join(theirs)
        await eventually(made.takes_part)
        other = Records(records.kube, f"{records.namespace}-other")
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other.namespace}}
        await records.kube.create(NAMESPACES, "", body)
        there = World(bus, made.registry, made.watching, other)
        for _ in range(2):
            # When the one that is marked later has joined or left, the other has been looked at, too.
            await made.annotate(kubeconfig="kubeconfig")
            await there.annotate(kubeconfig="kubeconfig")
            await eventually(there.takes_part)
            await made.annotate(kubeconfig=None)
            await there.annotate(kubeconfig=None)
            await eventually(there.absent)
            assert made.registry.members == {made.name: theirs}


async def test_marks_that_become_unusable_make_no_cluster_leave(bus: Bus, records: Records) -> None:
    async with world(bus, records) as made:
        before = await made.joins()
        await made.annotate(kubeconfig="a/b/c")
        await made.annotate(kubeconfig="another/key")

        async def moved() -> bool:
            assert made.name in made.registry.members
            return made.member != before

        await eventually(moved)


async def test_a_store_that_was_emptied_makes_no_cluster_leave(nats: NatsServer, records: Records) -> None:
    async with connected(Access(nats.url)) as bus:
        await eventually(lambda: made_anew(bus))
        async with world(bus, records) as made:
            await made.joins()
            known: list[Mapping[str, Member]] = []
            made.registry.on_change(lambda: known.append(made.registry.members))
            nats.wipe()
            nats.start()
            await eventually(lambda: made_anew(bus))
            await eventually(made.serves)
            latecomer = Registry(bus)

            async with running(latecomer.run()):
                await eventually(lambda: made.name in latecomer.members)
            assert all(made.name in members for members in known)


async def test_an_unreachable_cluster_keeps_its_mirrored_objects(
    bus: Bus, records: Records, control_plane: ControlPlane
) -> None:
    kubeconfig = control_plane.kubeconfig.parent / f"{records.namespace}.kubeconfig"
    async with (
        proxy(urlsplit(control_plane.url).port or 0) as wire,
        world(bus, records, file=kubeconfig) as made,
    ):
        text = portable(control_plane).replace(control_plane.url, f"https://127.0.0.1:{wire.port}")
        await asyncio.to_thread(kubeconfig.write_text, text)
        await made.registry.join(Member(id=made.name, file=str(kubeconfig), kinds=(SERVICES.id, NODES.id)))
        await eventually(made.serves)
        before = await on_the_bus(bus, made.name)
        opened = wire.opened
        wire.hang()
        wire.cut()

        await eventually(lambda: wire.opened > opened)
        assert await on_the_bus(bus, made.name) == before
        assert made.takes_part()
        wire.resume()


async def test_leftovers_of_a_cluster_are_purged_at_start(bus: Bus, records: Records) -> None:
    async with world(bus, records) as made:
        name = (await made.joins()).id
    assert await on_the_bus(bus, name)
    await Registry(bus).leave(name)
    await records.kube.merge(NAMESPACES, "", name, {"metadata": {"annotations": {KUBECONFIG: None}}})
    async with world(bus, records, joining=False) as made:
        await eventually(made.left)


async def test_a_cluster_that_rejoins_in_time_keeps_its_state(bus: Bus, records: Records) -> None:
    async with world(bus, records) as made:
        member = await made.joins()
    await Registry(bus).leave(member.id)
    await Registry(bus).join(member)
    service = subjects.seen(ObjectRef(member.id, SERVICES.id, "default", "kubernetes"))
    before = await bus.last(streams.OBJECTS, service)
    assert before
    async with world(bus, records) as made:
        await eventually(made.takes_part)

        await eventually(lambda: made.watching.states.get(f"{member.id}/{SERVICES.id}") == "watching")
        assert await bus.last(streams.OBJECTS, service) == before
