"""Listings, shares of the stream, turns, and what a cluster leaves behind: mirrors of simulated clusters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
from nats.aio.msg import Msg
from prometheus_client import Counter
from prometheus_client.samples import Sample

from bus import intents, streams, subjects
from bus.clusters.registry import Member
from bus.leases.leases import Leases
from bus.messages import OPERATION, UID, VERSION, Announcement, StatusIntent
from bus.transport import consumers
from bus.transport.connection import Bus
from sandbox import files
from tests.servers.watchers.conftest import KINDS, PATIENCE, Watched, listed, service, watched
from tests.support.apiservers import ApiServers
from tests.support.running import eventually, running, soon
from watchers import limits as bounds
from watchers import mirror as mirror_module
from watchers import watching
from watchers.continuity import Continuity, Permit
from watchers.limits import Known, KnownObjects, Shared
from watchers.mirror import Mirror
from watchers.watching import Watching
from windowbox.clients.kubernetes import kube
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Superseded, TooLarge, Unreachable
from windowbox.models.refs import NODES, SERVICES, ObjectRef
from windowbox.settings.bussettings import Retention
from windowbox.telemetry import metrics

RETENTION = Retention(size=1 << 20, versions=8)
BIG = "x" * 20_000


async def test_a_full_stream_drops_former_versions(bus: Bus, apis: ApiServers, tmp_path: Path) -> None:
    async with watched(bus, apis, tmp_path, 1, RETENTION) as there:
        before = apis.listings.copy()
        for name in ("one", "two", "three", "four"):
            for number in range(20):
                apis.put("runtime", SERVICES, service(name, f"{number}{BIG}"))
        apis.put("shoot--0", SERVICES, service("late", BIG))
        await there.tells("shoot--0", "late", "ADDED")
        assert apis.listings == before

        async def complete() -> bool:
            found = [await announced(bus, "runtime", name) for name in ("one", "two", "three", "four")]
            return all(one.object().spec["filler"] == f"19{BIG}" for one in found)

        await eventually(complete, PATIENCE)

        async def restored() -> bool:
            config = (await bus.api(f"STREAM.INFO.{streams.OBJECTS}"))["config"]
            return bool(config["max_msgs_per_subject"] == RETENTION.versions)

        await eventually(restored, PATIENCE)


async def test_no_cluster_fills_the_stream_for_others(bus: Bus, apis: ApiServers, tmp_path: Path) -> None:
    retention = Retention(size=4 << 20, versions=2)
    async with watched(bus, apis, tmp_path, 2, retention, share=0.1) as there:
        for number in range(30):
            apis.put("shoot--0", SERVICES, service(f"greedy-{number}", BIG))
        apis.put("shoot--1", SERVICES, service("modest", BIG))
        await there.tells("shoot--1", "modest", "ADDED")
        await there.tells("shoot--0", "greedy-29", "ADDED")
        assert (await announced(bus, "shoot--0", "greedy-0")).stored.data
        assert (await announced(bus, "shoot--0", "greedy-29")).omitted
        assert (await announced(bus, "shoot--1", "modest")).stored.data
        # What goes makes room again.
        for number in range(15):
            apis.delete("shoot--0", SERVICES, "default", f"greedy-{number}")
        await there.tells("shoot--0", "greedy-14", "DELETED")
        apis.put("shoot--0", SERVICES, service("greedy-29", BIG))
        await there.tells("shoot--0", "greedy-29", "MODIFIED")
        assert (await announced(bus, "shoot--0", "greedy-29")).stored.data


async def sharing(bus: Bus, tenant: Kube, share: float) -> Callable[[], Mirror]:
    """What makes mirrors of the Services of a cluster that has a share of the stream."""
    retention = Retention(size=1 << 20, versions=2)
    await streams.ensure(bus, 1, retention)
    shared = Shared(bus, retention=retention, share=share)
    return lambda: Mirror(bus, tenant, "tenant", SERVICES, shared)


async def test_an_object_keeps_or_regains_its_content(bus: Bus, apis: ApiServers, tenant: Kube) -> None:
    for name in ("web", "other", "late"):
        apis.put("tenant", SERVICES, service(name, BIG))
    mirror = await sharing(bus, tenant, 0.1)
    async with listed(mirror()):
        assert (await announced(bus, "tenant", "late")).omitted
        apis.put("tenant", SERVICES, service("web", BIG + "y" * 15_000))
        await eventually(lambda: is_announced(bus, "web", "MODIFIED"), PATIENCE)
        assert not (await announced(bus, "tenant", "web")).omitted
        apis.put("tenant", SERVICES, service("other", BIG * 5))
        await eventually(lambda: is_announced(bus, "other", "MODIFIED"), PATIENCE)
        assert (await announced(bus, "tenant", "other")).omitted
    apis.delete("tenant", SERVICES, "default", "web")
    for _ in range(2):  # not before the deletion has been published is there room
        async with listed(mirror()):
            pass
    assert not (await announced(bus, "tenant", "late")).omitted
    assert (await announced(bus, "tenant", "other")).omitted


async def test_a_cluster_is_watched_again_after_cleanup(bus: Bus, apis: ApiServers, tenant: Kube) -> None:
    for number in range(50):
        apis.put("tenant", SERVICES, service(f"many-{number}", ""))
    mirror = await sharing(bus, tenant, 0.01)
    with pytest.raises(TooLarge):
        await soon(mirror().run())
    for number in range(50):
        apis.delete("tenant", SERVICES, "default", f"many-{number}")
    apis.put("tenant", SERVICES, service("new", ""))
    with pytest.raises(TooLarge):
        await soon(mirror().run())
    async with listed(mirror()):
        for number in range(20):
            apis.put("tenant", SERVICES, service(f"brief-{number}", ""))
            apis.delete("tenant", SERVICES, "default", f"brief-{number}")
        apis.put("tenant", SERVICES, service("last", ""))
        last = subjects.seen(ObjectRef("tenant", SERVICES.id, "default", "last"))
        await eventually(lambda: bus.last(streams.OBJECTS, last), PATIENCE)
    apis.put("tenant", SERVICES, service("newer", ""))
    async with listed(mirror()):  # what was deleted takes no part of the share
        pass
    assert await is_announced(bus, "newer", "LISTED")
    assert await is_announced(bus, "new", "LISTED")
    assert await is_announced(bus, "many-0", "DELETED")


async def churn(bus: Bus, apis: ApiServers, first: int, count: int, filler: str = "") -> None:
    """Create and delete Services, each with a new name, until the bus shows their deletion."""
    for number in range(first, first + count):
        name = f"brief-{number:04}"
        apis.put("tenant", SERVICES, service(name, filler))
        apis.delete("tenant", SERVICES, "default", name)
        if number % 10 == 9:  # the simulated server remembers few events
            await eventually(lambda name=name: is_last(bus, name, "DELETED"), PATIENCE)  # type: ignore[misc]


async def kept(bus: Bus) -> int:
    """The number of names that the bus holds for the cluster."""
    request = {"subjects_filter": subjects.seen_kind("tenant", SERVICES.id)}
    state = (await bus.api(f"STREAM.INFO.{streams.OBJECTS}", request))["state"]
    return len(state.get("subjects") or ())


async def test_deleted_names_do_not_accumulate(
    bus: Bus, apis: ApiServers, tenant: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "_MOST_TOMBSTONES", 20)
    monkeypatch.setattr(bounds, "_SOONEST", 0.0)
    apis.put("tenant", SERVICES, service("stays"))
    async with listed(Mirror(bus, tenant, "tenant", SERVICES, Shared(bus))):
        await churn(bus, apis, 0, 300)
        await eventually(lambda: at_most(bus, 60), PATIENCE)
        assert await is_announced(bus, "brief-0299", "DELETED")  # the oldest go first
        assert await is_announced(bus, "stays", "LISTED")
        apis.put("tenant", SERVICES, service("brief-0000"))  # a forgotten name may come back
        await eventually(lambda: is_last(bus, "brief-0000", "ADDED"), PATIENCE)


async def test_young_tombstones_stay_for_slow_readers(
    bus: Bus, apis: ApiServers, tenant: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "_MOST_TOMBSTONES", 20)
    async with listed(Mirror(bus, tenant, "tenant", SERVICES, Shared(bus))):
        await churn(bus, apis, 0, 60)
        assert await kept(bus) == 60


async def test_tombstones_of_large_objects_are_charged_and_forgotten_early(
    bus: Bus, apis: ApiServers, tenant: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    retention = Retention(size=16 << 20, versions=2)
    await streams.ensure(bus, 1, retention)
    shared = Shared(bus, retention=retention, share=0.1)
    async with listed(Mirror(bus, tenant, "tenant", SERVICES, shared)):
        await churn(bus, apis, 0, 40, BIG)
        apis.put("tenant", SERVICES, service("large", BIG))  # deleted ones leave room for existing ones
        await eventually(lambda: is_last(bus, "large", "ADDED"), PATIENCE)
        assert not (await announced(bus, "tenant", "large")).omitted
    assert await kept(bus) == 41
    monkeypatch.setattr(bounds, "_SOONEST", 0.0)
    # Another process knows from the bus how much they take.
    async with listed(Mirror(bus, tenant, "tenant", SERVICES, Shared(bus, retention=retention, share=0.1))):
        await eventually(lambda: at_most(bus, 1), PATIENCE)
        await churn(bus, apis, 40, 40, BIG)
        await eventually(lambda: at_most(bus, 25), PATIENCE)


class Counted(dict[str, Known]):
    """Counts how often it is walked as a whole."""

    walks = 0

    def items(self) -> Any:
        self.walks += 1
        return super().items()

    def values(self) -> Any:
        self.walks += 1
        return super().values()


async def test_a_new_name_costs_the_same_beside_many_deleted_ones(
    bus: Bus, apis: ApiServers, tenant: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "_MOST_TOMBSTONES", 1 << 20)
    gone = {
        subjects.seen(ObjectRef("tenant", SERVICES.id, "default", f"gone-{number}")): Known(
            "uid", "1", number, True, bus.clock.rough(), 0
        )
        for number in range(100_001)
    }

    class Full(Shared):
        async def known(self, cluster: str, kind: str) -> KnownObjects:
            return gone

    mirror = Mirror(bus, tenant, "tenant", SERVICES, Full(bus))
    assert tenant.limits.listing.objects == 100_000
    async with listed(mirror):
        counted = mirror._known._known = Counted(mirror._known._known)
        await churn(bus, apis, 0, 50)
        assert counted.walks == 0
        assert len(counted) == 100_051


async def test_no_more_names_exist_than_the_limit_allows(
    bus: Bus, apis: ApiServers, tenant: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = tenant.limits
    few = limits._replace(listing=limits.listing._replace(objects=10))
    monkeypatch.setattr(tenant, "limits", few)
    mirror = Mirror(bus, tenant, "tenant", SERVICES, Shared(bus))
    mirroring = asyncio.create_task(mirror.run())
    await soon(mirror.listed.wait())
    await churn(bus, apis, 0, 30)  # deleted ones do not count
    for number in range(10):
        apis.put("tenant", SERVICES, service(f"brief-{number:04}"))
        await eventually(lambda number=number: is_last(bus, f"brief-{number:04}", "ADDED"), PATIENCE)  # type: ignore[misc]
    apis.put("tenant", SERVICES, service("brief-0010"))  # not even those that have existed before
    with pytest.raises(TooLarge, match="more than 10"):
        await soon(mirroring)


async def at_most(bus: Bus, count: int) -> bool:
    return await kept(bus) <= count


async def is_last(bus: Bus, name: str, operation: str) -> bool:
    found = await bus.last(streams.OBJECTS, subjects.seen(ObjectRef("tenant", SERVICES.id, "default", name)))
    return found is not None and Announcement(found).operation == operation


async def test_a_version_that_is_replaced_at_once_is_not_announced(
    bus: Bus, apis: ApiServers, tenant: Kube
) -> None:
    mirror = await sharing(bus, tenant, 1.0)
    uid = apis.put("tenant", SERVICES, service("web", "first"))["metadata"]["uid"]
    async with listed(mirror()):
        tenant.begin_passing(uid)
        apis.put("tenant", SERVICES, service("web", "passing"))
        apis.put("tenant", SERVICES, service("web", "last"))
        apis.put("tenant", SERVICES, service("other"))
        await eventually(lambda: knows(bus, "other"), PATIENCE)
        assert await versions(bus, "web") == ["first", "last"]
    newest = await announced(bus, "tenant", "web")
    first, _ = [s async for s in consumers.snapshot(bus, streams.OBJECTS, [seen("web")], history=True)]
    assert newest.predecessor == first.sequence


async def test_a_version_is_announced_if_none_follows(
    bus: Bus, apis: ApiServers, tenant: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_module, "PASSING", 0.05)
    mirror = await sharing(bus, tenant, 1.0)
    uid = apis.put("tenant", SERVICES, service("web", "first"))["metadata"]["uid"]
    async with listed(mirror()):
        tenant.begin_passing(uid)
        apis.put("tenant", SERVICES, service("web", "passing"))

        async def complete() -> bool:
            return await versions(bus, "web") == ["first", "passing"]

        await eventually(complete, PATIENCE)


async def test_a_deletion_announces_the_version_before_it(bus: Bus, apis: ApiServers, tenant: Kube) -> None:
    """Without it, nobody would know of a finalizer that the API server has overlooked."""
    mirror = await sharing(bus, tenant, 1.0)
    uid = apis.put("tenant", SERVICES, service("web", "first"))["metadata"]["uid"]
    async with listed(mirror()):
        tenant.begin_passing(uid)
        apis.put("tenant", SERVICES, service("web", "passing"))
        apis.delete("tenant", SERVICES, "default", "web")
        await eventually(lambda: is_announced(bus, "web", "DELETED"), PATIENCE)
    assert await versions(bus, "web") == ["passing", ""]  # the stream keeps two


def seen(name: str) -> str:
    return subjects.seen(ObjectRef("tenant", SERVICES.id, "default", name))


async def knows(bus: Bus, name: str) -> bool:
    return await bus.last(streams.OBJECTS, seen(name)) is not None


async def versions(bus: Bus, name: str) -> list[str]:
    """The filler of each version on the bus."""
    found = [s async for s in consumers.snapshot(bus, streams.OBJECTS, [seen(name)], history=True)]
    return [str(Announcement(stored).object().spec.get("filler", "")) for stored in found]


async def is_announced(bus: Bus, name: str, operation: str) -> bool:
    return (await announced(bus, "tenant", name)).operation == operation


async def announced(bus: Bus, cluster: str, name: str) -> Announcement:
    found = await bus.last(streams.OBJECTS, subjects.seen(ObjectRef(cluster, SERVICES.id, "default", name)))
    assert found is not None
    return Announcement(found)


async def test_few_consumers_read_many_clusters(bus: Bus) -> None:
    await streams.ensure(bus, 1)
    pairs = [(f"shoot--{number}", kind.id) for number in range(130) for kind in (NODES, SERVICES)]
    for cluster, kind in pairs:
        there = {OPERATION: "LISTED", UID: cluster, VERSION: kind}
        await bus.publish(subjects.seen(ObjectRef(cluster, kind, "default", "web")), b"", there)
        await bus.publish(subjects.listed(cluster, kind), b"", {})
    created: list[Msg] = []
    shared, advisories = Shared(bus), "$JS.EVENT.ADVISORY.CONSUMER.CREATED.OBJECTS.*"
    subscription = await bus.client.listen(advisories, created.append)
    found = await asyncio.gather(*(shared.known(*pair) for pair in pairs))
    [alone] = (await shared.known("shoot--7", SERVICES.id)).values()
    await eventually(lambda: len(created) >= 4)
    await subscription.unsubscribe()

    assert [[(one.uid, one.version) for one in known.values()] for known in found] == [
        [pair] for pair in pairs
    ]
    assert (alone.uid, alone.version) == ("shoot--7", SERVICES.id)
    assert len(created) == 4  # three for all, and one for the last


async def test_mirrors_without_a_lease_leave_turns_to_others(
    bus: Bus, apis: ApiServers, tenant: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "_UNFINISHED", 4)
    monkeypatch.setattr(bounds, "_LISTINGS", 1)
    shared, held, lost, publish = Shared(bus), asyncio.Event(), asyncio.Event(), bus.publish
    held.set()

    async def losing(subject: str, *rest: Any, **more: Any) -> int | None:
        if subject.startswith(subjects.seen_cluster("waits").removesuffix(">")) and not lost.is_set():
            held.clear()
            asyncio.get_running_loop().call_soon(lost.set)
            raise Unreachable("the bus is away, and the lease with it")
        return await publish(subject, *rest, **more)

    monkeypatch.setattr(bus, "publish", losing)
    apis.fill("tenant", SERVICES, 8)
    waits = Mirror(bus, tenant, "waits", SERVICES, shared, Permit(held))
    other = Mirror(bus, tenant, "other", SERVICES, shared)
    async with running(waits.run()):
        await soon(lost.wait())
        async with listed(other):
            pass
        assert not waits.listed.is_set()
        held.set()
        await soon(waits.listed.wait())


async def test_a_lost_empty_listing_is_noticed(bus: Bus, tenant: Kube) -> None:
    mirror = Mirror(bus, tenant, "tenant", SERVICES, Shared(bus))
    lost = asyncio.Event()
    continuity = Continuity(bus, lambda: mirror.newest, lost.set)
    async with listed(mirror), running(continuity.run()):
        await soon(continuity.intact.wait())
        continuity.doubt()
        await soon(continuity.intact.wait())
        assert not lost.is_set()
        await bus.purge(streams.OBJECTS, subjects.listed("tenant", SERVICES.id))
        continuity.doubt()
        await soon(lost.wait())


async def test_a_recreated_stream_is_noticed_despite_more_doubts(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = asyncio.Event()
    continuity = Continuity(bus, lambda: None, lost.set)
    async with running(continuity.run()):
        await soon(continuity.intact.wait())
        await bus.api(f"STREAM.DELETE.{streams.OBJECTS}")
        await streams.ensure(bus)
        api, again = bus.api, iter([True])

        async def doubting(*asked: Any, **more: Any) -> dict[str, Any]:
            answer = await api(*asked, **more)
            if next(again, False):
                continuity.doubt()
            return answer

        monkeypatch.setattr(bus, "api", doubting)
        continuity.doubt()
        await soon(continuity.intact.wait())
        assert lost.is_set()


async def test_a_superseded_mirror_doubts_the_bus(bus: Bus, apis: ApiServers, tenant: Kube) -> None:
    doubted = asyncio.Event()
    mirror = Mirror(bus, tenant, "tenant", SERVICES, Shared(bus, doubted.set))
    mirroring = asyncio.create_task(mirror.run())
    await soon(mirror.listed.wait())
    await bus.publish(subjects.seen(ObjectRef("tenant", SERVICES.id, "default", "web")), b"another's")
    apis.put("tenant", SERVICES, service("web"))
    with pytest.raises(Superseded, match="web"):
        await soon(mirroring)
    assert doubted.is_set()


OLD, NEW = (subjects.seen(ObjectRef("gone", SERVICES.id, "default", name)) for name in ("old", "new"))


async def test_a_late_purge_spares_what_is_announced_later(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    await bus.publish(OLD, b"{}")
    sent, arrives, purge = asyncio.Event(), asyncio.Event(), bus.purge

    async def late(stream: str, subject: str, before: int | None = None) -> None:
        sent.set()
        await arrives.wait()
        await purge(stream, subject, before)

    monkeypatch.setattr(bus, "purge", late)
    clearing = asyncio.create_task(watching.purge(bus, "gone", SERVICES.id))
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
    marker = await bus.last(streams.OBJECTS, subjects.listed("gone", SERVICES.id))
    assert marker
    assert marker.headers[OPERATION] == "DELETED"  # views forget the cluster by it
    assert await bus.last(streams.OBJECTS, OLD) is None
    assert await bus.last(streams.OBJECTS, NEW) is not None


async def test_a_listing_during_a_purge_is_repeated(bus: Bus, apis: ApiServers, tmp_path: Path) -> None:
    class Late(Shared):
        """A purge is applied when the mirror has read what there is."""

        async def known(self, cluster: str, kind: str) -> KnownObjects:
            found = await super().known(cluster, kind)
            await bus.purge(streams.OBJECTS, subjects.seen_kind(cluster, kind))
            apis.put("gone", SERVICES, service("new"))
            return found

    apis.put("gone", SERVICES, service("old"))
    files.write_private(tmp_path / "kubeconfig", apis.kubeconfig("gone"))
    async with kube.from_file(tmp_path / "kubeconfig") as client:
        async with listed(Mirror(bus, client, "gone", SERVICES, Shared(bus))):
            pass
        late = Mirror(bus, client, "gone", SERVICES, Late(bus))
        with pytest.raises(Superseded):
            await soon(late.run())
        assert not late.listed.is_set()
        async with listed(Mirror(bus, client, "gone", SERVICES, Shared(bus))):
            pass
    for subject in (OLD, NEW):
        assert await bus.last(streams.OBJECTS, subject) is not None


async def test_a_rejoined_cluster_is_mirrored_again(bus: Bus, apis: ApiServers, tmp_path: Path) -> None:
    async with watched(bus, apis, tmp_path, 3) as there:
        await everywhere_left(there)
        for name in there.members:
            await there.join(name)
        for name in there.members:
            apis.put(name, SERVICES, service("later"))
        for name in there.members:
            await there.tells(name, "later", "LISTED", "ADDED")
            await there.tells(name, "web", "LISTED")


async def test_reports_go_with_the_cluster_but_not_while_it_sleeps(
    bus: Bus, apis: ApiServers, tmp_path: Path
) -> None:
    async with watched(bus, apis, tmp_path, 2) as there:
        keys = [subjects.key(ObjectRef(name, SERVICES.id, "default", "web")) for name in there.members]
        for key in keys:
            await intents.report(bus, key, StatusIntent(uid="web", patch={"loadBalancer": {}}), 0)
        await there.watching.registry.join(Member(id=there.members[0], asleep=True))
        await there.leave(there.members[1])
        for name in there.members:
            await eventually(lambda name=name: is_cleared(bus, name), PATIENCE)  # type: ignore[misc]
        assert [(await intents.last(bus, key)).intent is None for key in keys] == [False, True]


async def test_a_watcher_forgets_clusters_that_have_left(bus: Bus, apis: ApiServers, tmp_path: Path) -> None:
    """Each Shoot that ever was must not cost memory."""
    async with watched(bus, apis, tmp_path, 2, Retention(size=1 << 20, versions=2), share=0.1) as there:
        first, second = there.members
        apis.put(first, SERVICES, service("large", BIG * 4))
        await there.tells(first, "large", "ADDED")
        shared = there.watching._shared
        await there.leave(second)
        await eventually(lambda: is_cleared(bus, second), PATIENCE)
        apis.away.add(second)
        await there.join(second)
        await eventually(lambda: is_in(second, shared._failed), PATIENCE)
        assert first in shared.budget._over
        await there.watching.registry.join(Member(id="newer", kinds=("unknown.example.com",)))
        await eventually(lambda: is_in("newer/unknown.example.com", there.watching.states), PATIENCE)
        for name in (first, second, "newer"):
            await there.leave(name)
        await eventually(lambda: is_cleared(bus, first), PATIENCE)
        watching = there.watching
        known = [*watching._states, *watching._running, *watching._mirrors, *watching._restarts]
        assert {cluster for cluster, _ in known} == {"runtime"}
        assert not shared._failed | shared.budget._over | shared.budget._used.keys() - {"runtime"}
        seen = {sample.labels["cluster"] for sample in samples(metrics.events_seen)}
        assert not seen & {first, second}


def samples(metric: Counter) -> list[Sample]:
    return [sample for family in metric.collect() for sample in family.samples]


async def is_in(one: str, all: Collection[str]) -> bool:
    return one in all


async def test_a_standby_waits_with_one_task_per_lease(bus: Bus, apis: ApiServers, tmp_path: Path) -> None:
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
        await there.leave(name)


async def is_cleared(bus: Bus, cluster: str) -> bool:
    return not await watching.kinds_of(bus, cluster)
