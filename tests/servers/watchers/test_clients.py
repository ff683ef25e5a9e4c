"""Watches whose client of an API server is closed while they are open miss nothing."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from random import Random

import pytest
from aiohttp.client_proto import ResponseHandler
from nats.aio.msg import Msg

from bus import streams, subjects
from bus.clusters.clusters import Clusters, clusters
from bus.clusters.registry import Member, Registry
from bus.leases.leases import Leases
from bus.messages import OPERATION
from bus.transport import consumers
from bus.transport.connection import Bus
from bus.transport.directclient import Requests
from sandbox import files
from tests.servers.watchers.conftest import KINDS, PATIENCE, Watched, service, watched
from tests.support import loopback
from tests.support.apiservers import ApiServers
from tests.support.running import eventually, running, soon
from watchers import watching
from watchers.limits import Shared
from watchers.mirror import Mirror
from watchers.watching import Watching
from windowbox.clients.kubernetes import kube
from windowbox.clients.kubernetes.credentials import CONNECTIONS
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import PermanentError, Unreachable, WindowboxError
from windowbox.kinds import WATCHED
from windowbox.models.refs import RUNTIME, SECRETS, SERVICES, ObjectRef, SecretKey


async def test_watches_leave_connections_to_requests(apis: ApiServers, tmp_path: Path) -> None:
    files.write_private(tmp_path / "kubeconfig", apis.kubeconfig("one"))

    async def watch() -> None:
        async for _ in client.watch(SERVICES, "1"):
            pass

    async with kube.from_file(tmp_path / "kubeconfig") as client:
        watches = [watch() for _ in range(len(WATCHED) + CONNECTIONS - 1)]
        async with running(*watches):
            await eventually(lambda: apis.watches["one"] == len(watches))
            async with contextlib.aclosing(client.pages(SERVICES)) as pages:  # type: ignore[type-var]
                assert await soon(anext(pages))


async def test_one_handshake_of_a_cluster_needs_its_certificate(
    bus: Bus, apis: ApiServers, tenant: Kube
) -> None:
    await streams.ensure(bus, 1)
    shared = Shared(bus)
    mirrors = [Mirror(bus, tenant, "tenant", kind, shared).run() for kind in KINDS]
    async with running(*mirrors):
        await eventually(lambda: apis.watches["tenant"] == len(KINDS))
        resumed = sorted(apis.connections["tenant"].values())
    assert len(resumed) >= len(KINDS)
    assert resumed == [False] + [True] * (len(resumed) - 1)


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


async def test_a_session_closed_as_headers_arrive_ends_the_watch(
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


async def test_a_new_client_silences_no_other_kind(bus: Bus, apis: ApiServers, tmp_path: Path) -> None:
    async with watched(bus, apis, tmp_path, 1) as there:
        (name,) = there.members
        former = await there.watching.clusters.get(name)
        apis.unknowing.add(name)
        with pytest.raises(PermanentError):
            await former.version()
        apis.unknowing.remove(name)
        assert await there.watching.clusters.get(name) is not former
        await there.tells_of_more(name)


async def test_a_cluster_back_while_others_close_stays_open(
    bus: Bus, apis: ApiServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close, closed, goes_on = Clusters._close, asyncio.Queue[str](), asyncio.Semaphore(0)

    async def slowly(clusters: Clusters, cluster: str) -> None:
        await close(clusters, cluster)
        closed.put_nowait(cluster)
        await goes_on.acquire()

    async with watched(bus, apis, tmp_path, 3) as there:
        monkeypatch.setattr(Clusters, "_close", slowly)
        first, *others = there.members
        await there.leave(first)
        assert await soon(closed.get()) == first
        for name in others:
            await there.leave(name)
            await there.has_watches(name, 0)
        goes_on.release()  # now both of the others are to be closed, one after the other
        second = await soon(closed.get())
        (last,) = set(others) - {second}
        client = there.watching.clusters._opened[last].kube
        await there.join(last)
        await there.has_watches(last, len(KINDS))
        for _ in range(100):
            goes_on.release()
        await there.tells_of_more(last)
        await there.join(second)
        await there.has_watches(second, len(KINDS))
        await there.leave(second)
        assert await soon(closed.get()) == second  # whatever was begun before has been done
        assert not client.stale


async def test_a_cluster_back_before_its_watches_end_is_watched(
    bus: Bus, apis: ApiServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end, ending, goes_on = watching._all_cancelled, asyncio.Event(), asyncio.Event()

    async def slowly(tasks: Iterable[asyncio.Task[None]]) -> None:
        tasks = list(tasks)
        if tasks:
            ending.set()
            await goes_on.wait()
        await end(tasks)

    async with watched(bus, apis, tmp_path, 2) as there:
        monkeypatch.setattr(watching, "_all_cancelled", slowly)
        first, second = there.members
        client = await there.watching.clusters.get(second)
        await there.leave(first)
        await soon(ending.wait())  # until the watches of the first have ended, nobody looks who takes part
        await there.leave(second)

        async def closed() -> bool:
            return client.stale

        await eventually(closed)
        await there.join(second)
        await eventually(lambda: second in there.watching.registry.members)
        goes_on.set()
        await there.tells_of_more(second)


CLUSTERS = {"slow", "fast"}


async def test_a_slow_cluster_holds_up_no_other(bus: Bus, apis: ApiServers, tmp_path: Path) -> None:
    files.write_private(tmp_path / "runtime", apis.kubeconfig(RUNTIME))
    for name in CLUSTERS:
        data = base64.b64encode(apis.kubeconfig(name).encode()).decode()
        secret = {"metadata": {"namespace": "default", "name": name}, "data": {"kubeconfig": data}}
        apis.put(RUNTIME, SECRETS, secret)
    apis.hanging.add("slow")
    registry = Registry(bus)
    async with (
        kube.from_file(tmp_path / "runtime") as runtime,
        running(registry.run()),
        clusters(runtime, registry, loopback.SETTINGS) as opened,
    ):
        for name in CLUSTERS:
            await registry.join(Member(id=name, secret=SecretKey(namespace="default", name=name)))

        await eventually(lambda: registry.members.keys() >= CLUSTERS, PATIENCE)
        slow = asyncio.create_task(opened.get("slow"))
        while not apis.hung:  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # the simulator sends no events
        assert (await opened.get("fast")).host.endswith("/fast")
        assert not slow.done()
        slow.cancel()
        await asyncio.wait([slow])


ROUNDS = 12
_PAUSES = (0.0, 0.0, 0.001, 0.005, 0.02, 0.1)


@pytest.mark.long
@pytest.mark.parametrize("seed", [31, 32])
async def test_nothing_is_lost_in_any_order(
    bus: Bus, apis: ApiServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    dice = Random(seed)
    monkeypatch.setattr(Requests, "ask", late(Requests.ask, dice))
    monkeypatch.setattr(watching, "_PROPAGATION_SECONDS", 0.3)
    async with watched(bus, apis, tmp_path, 4) as there:
        leases, first = Leases(bus, "two", "watch"), there.watching
        second = Watching(bus, leases, first.clusters, first.registry, tuple(kind.id for kind in KINDS))
        async with running(leases.run(), second.run()):
            world, reported = World(there, dice), []
            for number in range(ROUNDS):
                for _ in range(dice.randint(1, 8)):
                    act = dice.choice(
                        (world.leave, world.leave, world.join, world.refuse, world.lose, world.pause)
                    )
                    reported.append(act.__name__)
                    await act(dice.choice(there.members))
                for name in there.members:
                    apis.put(name, SERVICES, service(f"round-{number}"))
                for name in there.members:
                    try:
                        await eventually(lambda name=name: world.is_reported(name), PATIENCE)  # type: ignore[misc]
                    except TimeoutError:
                        pytest.fail(f"{name}: {reported}; {first.states}; {second.states}")


class World:
    """What happens to the clusters, and what the bus ought to hold of them."""

    def __init__(self, there: Watched, dice: Random) -> None:
        self._there, self._dice = there, dice
        self._joined = set(there.members)

    async def leave(self, name: str) -> None:
        if name in self._joined:
            await self._there.leave(name)
            self._joined.remove(name)

    async def join(self, name: str) -> None:
        await self._there.join(name)
        self._joined.add(name)

    async def refuse(self, name: str) -> None:
        """Have the API server answer 401 for a moment, so that somebody gets a client anew."""
        clusters, apis = self._there.watching.clusters, self._there.apis
        apis.unknowing.add(name)
        with contextlib.suppress(WindowboxError):
            await (await clusters.get(name)).version()
        apis.unknowing.remove(name)
        with contextlib.suppress(WindowboxError):
            await clusters.get(name)

    async def lose(self, _: str) -> None:
        """Have all leases lost."""
        await self._there.bus.api(f"STREAM.PURGE.KV_{streams.LEASES}")

    async def pause(self, _: str) -> None:
        await asyncio.sleep(self._dice.choice(_PAUSES))  # orders differ by how far all has come

    async def is_reported(self, name: str) -> bool:
        """Whether the bus holds just the Services of a cluster that takes part, and none of others."""
        services = self._services(name) if name in self._joined else set()
        found, all_of = set(), [subjects.seen_kind(name, SERVICES.id)]
        with contextlib.suppress(WindowboxError):
            async for stored in consumers.snapshot(
                self._there.bus, streams.OBJECTS, all_of, headers_only=True
            ):
                if stored.headers[OPERATION] != "DELETED":
                    found.add(stored.subject)
            return found == services
        return False

    def _services(self, name: str) -> set[str]:
        names = self._there.apis.names(name, SERVICES)
        return {subjects.seen(ObjectRef(name, SERVICES.id, *one)) for one in names}


Ask = Callable[..., Awaitable[Msg]]


def late(ask: Ask, dice: Random) -> Ask:
    """Questions to the bus that leave late, and whose answers arrive late."""

    async def asked(*args: object, **more: object) -> Msg:
        try:
            await asyncio.sleep(dice.choice(_PAUSES))  # on the way to the server
            return await ask(*args, **more)
        finally:
            await asyncio.sleep(dice.choice(_PAUSES))  # and back

    return asked
