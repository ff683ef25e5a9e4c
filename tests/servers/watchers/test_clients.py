"""Watches whose client of an API server is closed while they are open: nothing is missed for that."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest
from aiohttp.client_proto import ResponseHandler

from bus import streams
from bus.clusters.clusters import Clusters
from bus.clusters.registry import Member
from bus.transport.connection import Bus
from sandbox import files
from tests.servers.watchers.conftest import KINDS, PATIENCE, Watched, watched
from tests.support import loopback
from tests.support.apiservers import ApiServers
from tests.support.running import eventually, soon
from watchers import watching
from windowbox.clients.kubernetes import kube
from windowbox.errors import PermanentError, Unreachable
from windowbox.models.refs import SERVICES


async def test_a_watch_ends_when_its_session_is_closed(apis: ApiServers, tmp_path: Path) -> None:
    files.write_private(tmp_path / "kubeconfig", apis.kubeconfig("one"))

    async def watch() -> None:
        async for _ in client.watch(SERVICES, "1"):
            pass

    async with kube.from_file(tmp_path / "kubeconfig") as client:
        reading = asyncio.create_task(watch())
        await eventually(lambda: apis.watches["one"] == 1)
    with pytest.raises(Unreachable):
        await soon(reading)
    assert client.stale


async def test_a_watch_ends_when_its_session_is_closed_as_its_headers_arrive(
    apis: ApiServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, closing = ResponseHandler.data_received, list[asyncio.Task[bool | None]]()
    opened = kube.from_text(apis.kubeconfig("one").encode(), "one", loopback.EGRESS)

    def close_first(handler: ResponseHandler, data: bytes) -> None:
        closing.append(asyncio.create_task(opened.__aexit__(None, None, None)))
        take(handler, data)  # whoever waits for the headers goes on after the closing

    client = await opened.__aenter__()
    monkeypatch.setattr(ResponseHandler, "data_received", close_first)
    with pytest.raises(Unreachable):
        async for _ in client.watch(SERVICES, "1"):
            pass
    await soon(closing[0])
    assert client.stale


async def test_a_client_made_anew_for_one_kind_silences_no_other(
    bus: Bus, apis: ApiServers, tmp_path: Path
) -> None:
    await streams.ensure(bus)
    async with watched(bus, apis, tmp_path, 1) as there:
        (name,) = there.members
        former = await there.watching.clusters.get(name)
        apis.unknowing.add(name)
        with pytest.raises(PermanentError):
            await former.version()
        apis.unknowing.remove(name)
        assert await there.watching.clusters.get(name) is not former
        await _tells_of_more(there, name)


async def test_a_cluster_that_came_back_while_others_were_closed_stays_open(
    bus: Bus, apis: ApiServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await streams.ensure(bus)
    close, closed, goes_on = Clusters._close, asyncio.Queue[str](), asyncio.Semaphore(0)

    async def slowly(clusters: Clusters, cluster: str) -> None:
        await close(clusters, cluster)
        closed.put_nowait(cluster)
        await goes_on.acquire()

    async with watched(bus, apis, tmp_path, 3) as there:
        monkeypatch.setattr(Clusters, "_close", slowly)
        registry = there.watching.registry
        first, *others = there.members
        await registry.leave(first)
        assert await soon(closed.get()) == first
        for name in others:
            await registry.leave(name)
            await _has_watches(there, name, 0)
        goes_on.release()  # now both of the others are to be closed, one after the other
        second = await soon(closed.get())
        (last,) = set(others) - {second}
        client = there.watching.clusters._opened[last].kube
        await registry.join(Member(id=last, file=str(tmp_path / f"{last}.kubeconfig")))
        await _has_watches(there, last, len(KINDS))
        for _ in range(100):
            goes_on.release()
        await _tells_of_more(there, last)
        await registry.join(Member(id=second, file=str(tmp_path / f"{second}.kubeconfig")))
        await _has_watches(there, second, len(KINDS))
        await registry.leave(second)
        assert await soon(closed.get()) == second  # whatever was begun before has been done
        assert not client.stale


async def test_a_cluster_that_came_back_before_its_watches_ended_is_watched(
    bus: Bus, apis: ApiServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await streams.ensure(bus)
    end, ending, goes_on = watching._all_cancelled, asyncio.Event(), asyncio.Event()

    async def slowly(tasks: Iterable[asyncio.Task[None]]) -> None:
        tasks = list(tasks)
        if tasks:
            ending.set()
            await goes_on.wait()
        await end(tasks)

    async with watched(bus, apis, tmp_path, 2) as there:
        monkeypatch.setattr(watching, "_all_cancelled", slowly)
        registry, (first, second) = there.watching.registry, there.members
        client = await there.watching.clusters.get(second)
        await registry.leave(first)
        await soon(ending.wait())  # until the watches of the first have ended, nobody looks who takes part
        await registry.leave(second)

        async def closed() -> bool:
            return client.stale

        await eventually(closed)
        await registry.join(Member(id=second, file=str(tmp_path / f"{second}.kubeconfig")))
        await eventually(lambda: second in there.watching.registry.members)
        goes_on.set()
        await _tells_of_more(there, second)


async def _has_watches(there: Watched, cluster: str, number: int) -> None:

    await eventually(lambda: there.apis.watches[cluster] == number, PATIENCE)


async def _tells_of_more(there: Watched, cluster: str) -> None:
    """Wait until the bus tells of a Service that is made now."""
    there.apis.put(cluster, SERVICES, {"metadata": {"namespace": "default", "name": "more"}})
    await there.tells(cluster, "more", "ADDED", "LISTED")
