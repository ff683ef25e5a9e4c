"""What clusters leave behind on the bus is taken out, but nothing that is announced later."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bus import streams, subjects
from bus.clusters.registry import Member
from bus.leases.leases import Leases
from bus.transport.connection import Bus
from sandbox import files
from tests.servers.watchers.conftest import KINDS, PATIENCE, Watched, watched
from tests.support.apiservers import ApiServers
from tests.support.running import eventually, running, soon
from watchers import purging
from watchers.limits import KnownObjects, Shared
from watchers.mirror import Mirror
from watchers.watching import Watching
from windowbox.clients.kubernetes import kube
from windowbox.errors import Superseded
from windowbox.models.refs import SERVICES, ObjectRef

OLD, NEW = (subjects.seen(ObjectRef("gone", SERVICES.id, "default", name)) for name in ("old", "new"))


async def test_a_late_purge_spares_what_is_announced_later(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    await streams.ensure(bus)
    await bus.publish(OLD, b"{}")
    sent, arrives, purge = asyncio.Event(), asyncio.Event(), bus.purge

    async def late(stream: str, subject: str, before: int | None = None) -> None:
        sent.set()
        await arrives.wait()
        await purge(stream, subject, before)

    monkeypatch.setattr(bus, "purge", late)
    clearing = asyncio.create_task(purging.purge(bus, "gone", SERVICES.id))
    await soon(sent.wait())
    # The kind is mirrored anew only when what was sent has arrived; and if not, nothing new is lost.
    for _ in range(2):
        clearing.cancel()
        await asyncio.wait([clearing], timeout=0.05)
        assert not clearing.done()
    await bus.publish(NEW, b"{}")
    arrives.set()
    await asyncio.wait([clearing])
    assert clearing.cancelled()
    assert await bus.last(streams.OBJECTS, OLD) is None
    assert await bus.last(streams.OBJECTS, NEW) is not None


async def test_a_listing_that_met_a_purge_under_way_is_repeated(
    bus: Bus, apis: ApiServers, tmp_path: Path
) -> None:
    class Late(Shared):
        """A purge is applied when the mirror has read what there is."""

        async def known(self, cluster: str, kind: str) -> KnownObjects:
            found = await super().known(cluster, kind)
            await bus.purge(streams.OBJECTS, subjects.seen_kind(cluster, kind))
            apis.put("gone", SERVICES, {"metadata": {"namespace": "default", "name": "new"}})
            return found

    await streams.ensure(bus)
    apis.put("gone", SERVICES, {"metadata": {"namespace": "default", "name": "old"}})
    files.write_private(tmp_path / "kubeconfig", apis.kubeconfig("gone"))
    async with kube.from_file(tmp_path / "kubeconfig") as client:

        async def list_once() -> None:
            mirror = Mirror(bus, client, "gone", SERVICES, Shared(bus))
            async with running(mirror.run()):
                await soon(mirror.listed.wait())

        await list_once()
        late = Mirror(bus, client, "gone", SERVICES, Late(bus))
        with pytest.raises(Superseded):
            await soon(late.run())
        assert not late.listed.is_set()
        await list_once()
    for subject in (OLD, NEW):
        assert await bus.last(streams.OBJECTS, subject) is not None


async def test_a_cluster_that_comes_back_at_once_is_mirrored_anew(
    bus: Bus, apis: ApiServers, tmp_path: Path
) -> None:
    await streams.ensure(bus)
    async with watched(bus, apis, tmp_path, 3) as there:
        await everywhere_left(there)
        for name in there.members:
            await there.watching.registry.join(Member(id=name, file=str(tmp_path / f"{name}.kubeconfig")))
        for name in there.members:
            apis.put(name, SERVICES, {"metadata": {"namespace": "default", "name": "later"}})
        for name in there.members:
            await there.tells(name, "later", "LISTED", "ADDED")
            await there.tells(name, "web", "LISTED")


async def test_whoever_stands_by_waits_with_one_task_for_each_lease(
    bus: Bus, apis: ApiServers, tmp_path: Path
) -> None:
    await streams.ensure(bus)
    async with watched(bus, apis, tmp_path, 3) as there:
        leases, first = Leases(bus, "two", "watch"), there.watching
        second = Watching(bus, leases, first.clusters, first.registry, tuple(kind.id for kind in KINDS))
        async with running(leases.run(), second.run()):
            await eventually(lambda: list(second.states.values()) == 12 * ["standing by"], PATIENCE)
            await everywhere_left(there)
            for name in there.members:
                await eventually(lambda name=name: is_cleared(bus, name), PATIENCE)  # type: ignore[misc]
            await eventually(lambda: list(second.states.values()) == 3 * ["standing by"], PATIENCE)
            waiting = [task for task in asyncio.all_tasks() if task.get_name().startswith("watch: clear")]
            assert len(waiting) <= 2 * len(there.members)  # of two processes, not one for each kind


async def everywhere_left(there: Watched) -> None:
    for name in there.members:
        await there.watching.registry.leave(name)


async def is_cleared(bus: Bus, cluster: str) -> bool:
    return not await purging.kinds_of(bus, cluster)
