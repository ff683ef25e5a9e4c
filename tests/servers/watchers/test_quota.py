"""A full OBJECTS recovers, and no cluster fills it for the others."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from bus import streams, subjects
from bus.messages import Announcement
from bus.transport.connection import Bus
from sandbox import files
from tests.servers.watchers.conftest import PATIENCE, watched
from tests.support.apiservers import ApiServers
from tests.support.running import eventually, running, soon
from watchers.limits import Shared
from watchers.mirror import Mirror
from windowbox.clients.kubernetes import kube
from windowbox.errors import TooLarge
from windowbox.models.refs import SERVICES, ObjectRef
from windowbox.settings.bussettings import Retention

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


@contextlib.asynccontextmanager
async def tenant(
    bus: Bus, apis: ApiServers, folder: Path, share: float
) -> AsyncIterator[Callable[[], Mirror]]:
    """A cluster with a share of the stream; what is yielded makes mirrors of its Services."""
    retention = Retention(size=1 << 20, versions=2)
    await streams.ensure(bus, 1, retention)
    files.write_private(folder / "tenant", apis.kubeconfig("tenant"))
    async with kube.from_file(folder / "tenant") as opened:
        shared = Shared(bus, retention=retention, share=share)
        yield lambda: Mirror(bus, opened, "tenant", SERVICES, shared)


async def test_an_object_keeps_its_content_and_gets_it_back(
    bus: Bus, apis: ApiServers, tmp_path: Path
) -> None:
    for name in ("web", "other", "late"):
        apis.put("tenant", SERVICES, service(name, BIG))
    async with tenant(bus, apis, tmp_path, 0.1) as mirror:
        first = mirror()
        async with running(first.run()):
            await soon(first.listed.wait())
            assert (await announced(bus, "tenant", "late")).omitted
            apis.put("tenant", SERVICES, service("web", BIG + "y" * 15_000))
            await eventually(lambda: is_announced(bus, "web", "MODIFIED"), PATIENCE)
            assert not (await announced(bus, "tenant", "web")).omitted
            apis.put("tenant", SERVICES, service("other", BIG * 5))
            await eventually(lambda: is_announced(bus, "other", "MODIFIED"), PATIENCE)
            assert (await announced(bus, "tenant", "other")).omitted
        apis.delete("tenant", SERVICES, "default", "web")
        second = mirror()
        async with running(second.run()):
            await soon(second.listed.wait())
        # Not before the deletion has been published is there room.
        third = mirror()
        async with running(third.run()):
            await soon(third.listed.wait())
        assert not (await announced(bus, "tenant", "late")).omitted
        assert (await announced(bus, "tenant", "other")).omitted


async def test_a_cluster_far_over_its_share_is_watched_again_when_it_is_cleaned_up(
    bus: Bus, apis: ApiServers, tmp_path: Path
) -> None:
    for number in range(50):
        apis.put("tenant", SERVICES, service(f"many-{number}", ""))
    async with tenant(bus, apis, tmp_path, 0.01) as mirror:
        with pytest.raises(TooLarge):
            await soon(mirror().run())
        for number in range(50):
            apis.delete("tenant", SERVICES, "default", f"many-{number}")
        apis.put("tenant", SERVICES, service("new", ""))
        with pytest.raises(TooLarge):
            await soon(mirror().run())
        again = mirror()
        async with running(again.run()):
            await soon(again.listed.wait())
            for number in range(20):
                apis.put("tenant", SERVICES, service(f"brief-{number}", ""))
                apis.delete("tenant", SERVICES, "default", f"brief-{number}")
            apis.put("tenant", SERVICES, service("last", ""))
            await there_is(bus, "last")
        apis.put("tenant", SERVICES, service("newer", ""))
        anew = mirror()
        async with running(anew.run()):  # what was deleted takes no part of the share
            await soon(anew.listed.wait())
        assert await is_announced(bus, "newer", "LISTED")
        assert await is_announced(bus, "new", "LISTED")
        assert await is_announced(bus, "many-0", "DELETED")


async def there_is(bus: Bus, name: str) -> None:
    subject = subjects.seen(ObjectRef("tenant", SERVICES.id, "default", name))
    await eventually(lambda: bus.last(streams.OBJECTS, subject), PATIENCE)


async def is_announced(bus: Bus, name: str, operation: str) -> bool:
    return (await announced(bus, "tenant", name)).operation == operation


async def announced(bus: Bus, cluster: str, name: str) -> Announcement:
    found = await bus.last(streams.OBJECTS, subjects.seen(ObjectRef(cluster, SERVICES.id, "default", name)))
    assert found is not None
    return Announcement(found)
