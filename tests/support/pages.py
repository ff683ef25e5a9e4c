"""The page of `windowbox ui` on a bus of the test's own."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import orjson
from pydantic import SecretStr

from bus import queries, streams, subjects
from bus.leases import presence
from bus.messages import OPERATION, PREDECESSOR, UID, VERSION, Call, Reason, RunRecord, Wish
from bus.transport.connection import Bus, connected
from bus.workqueue.queue import Queue
from tests.support.natsserver import ensured
from tests.support.roles import RoleServer
from tests.support.running import eventually, running
from ui import sessions
from ui.mirror import Mirror
from ui.server import Server
from ui.view import Source
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Missing
from windowbox.models.refs import DNSRECORDS, ObjectRef
from windowbox.settings.uisettings import UiSettings
from workers.loadbalancer.edge.edgestatus import EdgeStatus, LoadBalancerStatus, Query
from workers.loadbalancer.edgestate import EdgeState

KEY = "the key of links"


@dataclass
class World:
    """A bus, the page on it, and what other processes would write."""

    bus: Bus
    """As the operator, but for what only roles may publish."""
    mirror: Mirror
    server: Server
    url: str
    sequences: dict[str, int] = field(default_factory=dict)

    def link(self) -> str:
        return f"{self.url}/enter?link={sessions.link(KEY, time.time())}"

    def cookie(self) -> str:
        """A cookie of somebody who has signed in: links and tokens are taken only now and then."""
        value, _ = self.server._sessions.begin("somebody")
        return value

    @contextlib.asynccontextmanager
    async def signed_in(self) -> AsyncIterator[aiohttp.ClientSession]:
        """A client that has signed in by a link."""
        jar = aiohttp.CookieJar(unsafe=True)  # of an address
        async with aiohttp.ClientSession(self.url, cookie_jar=jar) as client:
            async with client.get("/enter", params={"link": sessions.link(KEY, time.time())}) as answer:
                assert answer.status == 200, await answer.text()
            yield client

    async def text(self, path: str) -> str:
        async with self.signed_in() as client, client.get(path) as answer:
            return await answer.text()

    async def object(self, ref: ObjectRef, body: dict[str, Any] | None, operation: str = "") -> int:
        """Announce a version of an object, as a watcher does; None for its deletion."""
        before = self.sequences.get(subjects.seen(ref), 0)
        operation = operation or ("DELETED" if body is None else "MODIFIED" if before else "ADDED")
        named = {"name": ref.name, "namespace": ref.namespace, "uid": "u"}
        whole = None if body is None else {**body, "metadata": named | body.get("metadata", {})}
        headers = {
            OPERATION: operation, UID: "u", VERSION: str(before + 1), PREDECESSOR: str(before),
        }  # fmt: skip
        data = orjson.dumps(whole) if whole else b""
        sequence = await self.bus.publish(subjects.seen(ref), data, headers)
        self.sequences[subjects.seen(ref)] = sequence or 0
        return sequence or 0

    async def run(self, ref: ObjectRef, outcome: str = "succeeded", note: str = "", **more: Any) -> RunRecord:
        """Write the record of a run, as a worker does."""
        ago = more.pop("ago", 0.0)
        record = RunRecord(
            **{
                "pool": "dnsrecord",
                "key": subjects.key(ref),
                "wish": Wish(reason=Reason.EVENT),
                "wish_sequence": 1,
                "delivery": 1,
                "waited": 0.004,
                "seconds": 0.021,
                "started": datetime.now(UTC) - timedelta(seconds=ago),
                "process": "work@host-1",
                "outcome": outcome,
                "note": note,
                **more,
            }
        )
        await self.bus.publish(subjects.run(record.pool, record.key), record.encoded())
        return record

    async def later(self, ref: ObjectRef, wish: Wish, after: float, pool: str = "dnsrecord") -> None:
        await Queue(self.bus, pool).schedule(subjects.key(ref), wish, after)

    async def settled(self) -> None:
        await eventually(lambda: self.mirror.settled)


@contextlib.asynccontextmanager
async def served(
    roles: RoleServer, kube: Callable[[], Awaitable[Kube]] | None = None, **settings: Any
) -> AsyncIterator[World]:
    """The page, with the rights of its role, on a bus with all streams."""

    async def nobody() -> Kube:
        raise Missing("there is no cluster in this test")

    # No user may write all that this writes, so it is written by one without a name.
    async with connected(roles.access("runner")) as writing, connected(roles.access("ui")) as bus:
        await ensured(writing)
        ui = UiSettings(**{"address": "127.0.0.1:0", "link_key": SecretStr(KEY), **settings})
        server = Server(ui, kube or nobody)
        mirror = Mirror(bus, server.hub.changed)
        server.hub.source = Source(mirror, ui.monitor)
        async with (
            running(*(task() for task in mirror.tasks.values())),
            server.listening() as address,
        ):
            world = World(writing, mirror, server, f"http://{address}")
            await world.settled()
            yield world


@contextlib.asynccontextmanager
async def process(
    world: World, role: str = "work", pools: Iterable[str] = ("dnsrecord",)
) -> AsyncIterator[None]:
    """A process that describes itself, as all of windowbox do."""
    described = {
        "role": role, "process": f"{role}@host-1", "metrics": "", "ready": True,
        "pools": [{"pool": pool, "in flight": 0} for pool in pools],
    }  # fmt: skip
    async with presence.answering(world.bus, lambda: described):
        yield


@contextlib.asynccontextmanager
async def edge(world: World, status: EdgeStatus) -> AsyncIterator[None]:
    """An edge that answers as the one of a worker does, whose Envoy carries more at each question."""
    asked = itertools.count(1)

    async def answer(question: bytes) -> bytes:
        key, times = Query.model_validate_json(question).key, next(asked)
        found = [
            grown(one, times, whole=key is not None) for one in status.balancers if key in (None, one.key)
        ]
        return status.model_copy(update={"balancers": tuple(found)}).encoded()

    async with queries.answering(world.bus, queries.EDGE, answer):
        yield


def grown(one: LoadBalancerStatus, times: int, *, whole: bool) -> LoadBalancerStatus:
    places = tuple(
        place.model_copy(update={"received": place.received * times, "sent": place.sent * times})
        for place in one.places
    )
    sums = {"received": sum(each.received for each in places), "sent": sum(each.sent for each in places)}
    return one.model_copy(update={**sums, "places": places if whole else ()})


async def balanced(world: World, ref: ObjectRef, address: str, **state: Any) -> None:
    """A Service of type LoadBalancer that the edge serves."""
    body = {
        "spec": {
            "type": "LoadBalancer", "ports": [{"port": 443, "nodePort": 30443, "protocol": "TCP"}],
            "ipFamilies": ["IPv4"],
        },
        "status": {"loadBalancer": {"ingress": [{"ip": address}]}},
    }  # fmt: skip
    await world.object(ref, body)
    since = datetime.now(UTC) - timedelta(hours=3)
    served = EdgeState(
        **{"uid": "u", "digest": "", "since": since.isoformat(), "backends": ("n1",), "addresses": (address,)}
        | state
    )
    await world.bus.publish(subjects.entry(streams.EDGES, subjects.key(ref)), served.encoded())


def record(name: str, namespace: str = "shoot--local--demo") -> ObjectRef:
    return ObjectRef("runtime", DNSRECORDS.id, namespace, name)


def call(door: str, request: Any, **more: Any) -> Call:
    return Call(door=door, request=request, effect=True, **more)
