"""One more Service costs the edge the same, however many it serves already."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import Counter
from collections.abc import Iterator
from types import FrameType
from typing import Any

from bus import streams
from bus.clusters.registry import Registry
from bus.transport.buckets import Bucket
from bus.transport.connection import Bus
from bus.workqueue.queue import Queue
from tests.servers.edge.mirror import list_all, see
from tests.servers.envoy.world import World
from tests.servers.ipam.stores import range_of
from tests.support.lbobjects import HTTP, node, service
from tests.support.running import eventually, running, soon
from windowbox.models.refs import NODES, RUNTIME, SERVICES, ObjectRef
from windowbox.settings.lbsettings import LoadBalancerSettings
from workers.loadbalancer.edge.controller import EdgeParts, EdgeTerms
from workers.loadbalancer.edgestate import POOL, States
from workers.loadbalancer.ipam import addressclaims
from workers.loadbalancer.ipam.entries import Holder
from workers.loadbalancer.ipam.store import AddressStore

_FEW, _MANY = 20, 420


@contextlib.contextmanager
def counting() -> Iterator[Counter[str]]:
    """The lines that each function of the load balancers executes within the block."""
    lines = Counter[str]()

    def count(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            lines[frame.f_code.co_qualname] += 1
        return count

    def begin(frame: FrameType, *_: Any) -> Any:
        return count if "/workers/loadbalancer/" in frame.f_code.co_filename else None

    sys.settrace(begin)
    try:
        yield lines
    finally:
        sys.settrace(None)


async def test_one_more_service_costs_the_same_beside_many(bus: Bus, bare: World) -> None:
    """No step goes through all of them: each would execute a line for each."""
    first = bare.address()
    half = first.rsplit(".", 2)[0]
    store, registry = AddressStore(bus, [range_of(f"{half}.0.0/16")]), Registry(bus)
    states, queue = States(Bucket(bus, streams.EDGES)), Queue(bus, POOL)
    terms = EdgeTerms(EdgeParts(bus, registry, store, states, bare.attachment, LoadBalancerSettings(), queue))

    reported = set[str]()

    def note(ref: ObjectRef, state: bytes | None) -> None:
        reported.update({ref.name} if state else ())

    states.on_state(note)

    def is_observing() -> bool:
        return any(task.get_name() == "edge: observe" for task in asyncio.all_tasks())

    async def serve(number: int) -> None:
        name, port = f"web-{number}", {**HTTP, "nodePort": 20_000 + number}
        holder = Holder(cluster=RUNTIME, namespace="default", name=name, uid=name, since=1.0)
        await store.write(f"{half}.{200 + number // 250}.{number % 250 + 1}", (holder,), 0)
        wanted = service(metadata={"name": name, "uid": name}, ports=[port])
        await see(bus, SERVICES, name, wanted, "default")

    async def one_more_beside(services: range) -> Counter[str]:
        for number in services[:-1]:
            await serve(number)
        await eventually(lambda: len(reported) == services[-1] and not is_observing())
        with counting() as lines:
            await serve(services[-1])
            await eventually(lambda: len(reported) == services[-1] + 1)
        return lines

    async with running(store.run(), states.bucket.run(), registry.run()):
        await soon(store.synced.wait())
        await addressclaims.adopt_all(store, [])
        await see(bus, NODES, "one", node("one", first))
        await list_all(bus, SERVICES, NODES)
        async with running(terms.run()):
            few = await one_more_beside(range(_FEW + 1))
            many = await one_more_beside(range(_FEW + 1, _MANY + 1))
    assert few["DesiredState._compute_some"] > 10
    # The file of owners has all of them, and is written behind the changes, seldom.
    more = {
        name: (few[name], lines)
        for name, lines in many.items()
        if lines - few[name] > _MANY / 4 and not name.startswith("Configuration.owners")
    }
    assert not more, "lines beside few, and beside many"
