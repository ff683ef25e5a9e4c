"""A full OBJECTS recovers, and no cluster fills it for the others."""

from __future__ import annotations

from pathlib import Path

from bench.apiservers import ApiServers
from bus import streams, subjects
from bus.connection import Bus
from bus.messages import Announcement
from bus.streams import Retention
from tests.servers.watchers.conftest import PATIENCE, watched
from tests.support.running import eventually
from windowbox.models.refs import SERVICES, ObjectRef

RETENTION = Retention(size=1 << 20, versions=8)
BIG = "x" * 20_000


def service(name: str, filler: str) -> dict[str, object]:
    return {"metadata": {"namespace": "default", "name": name}, "spec": {"filler": filler}}


async def config(bus: Bus) -> dict[str, object]:
    found: dict[str, object] = (await bus.api(f"STREAM.INFO.{streams.OBJECTS}"))["config"]
    return found


async def test_a_full_stream_drops_former_versions_and_goes_on(
    bus: Bus, apis: ApiServers, tmp_path: Path
) -> None:
    await streams.ensure(bus, 1, RETENTION)
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
            return (await config(bus))["max_msgs_per_subject"] == RETENTION.versions

        await eventually(restored, PATIENCE)


async def test_one_cluster_cannot_fill_the_stream_for_others(
    bus: Bus, apis: ApiServers, tmp_path: Path
) -> None:
    retention = Retention(size=4 << 20, versions=2)
    await streams.ensure(bus, 1, retention)
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


async def announced(bus: Bus, cluster: str, name: str) -> Announcement:
    found = await bus.last(streams.OBJECTS, subjects.seen(ObjectRef(cluster, SERVICES.id, "default", name)))
    assert found is not None
    return Announcement(found)
