"""`windowbox edge`: runs Envoy for load balancers."""

from __future__ import annotations

from bus import streams
from bus.transport.buckets import Bucket
from bus.workqueue.queue import Queue
from commands.roles import ccmconfig
from commands.roles.roleprocess import Process
from windowbox.errors import Malformed
from workers.loadbalancer.edge.controller import EdgeParts, EdgeTerms
from workers.loadbalancer.edgestate import POOL, States
from workers.loadbalancer.envoy import opening
from workers.loadbalancer.ipam.store import AddressStore


async def edge(made: Process) -> None:
    """Run Envoy for load balancers. This role uses the bus only, no API server."""
    settings = made.settings.loadbalancer
    if not settings.ranges:
        raise Malformed("the edge needs loadbalancer.ranges: set it as for `windowbox work`")
    store = AddressStore(made.bus, settings.ranges, settings.quota)
    states = States(Bucket(made.bus, streams.EDGES))
    made.tasks |= {"addresses": store.run, "edge states": states.bucket.run}
    await add_edge(made, store, states)


async def add_edge(made: Process, store: AddressStore, states: States) -> None:
    """Run Envoy while this process holds the lease `edge`."""
    config = ccmconfig.applied(made.settings.loadbalancer)
    attachment = await made.closing.enter_async_context(opening.opened(config.settings))
    queue = Queue(made.bus, POOL)
    terms = EdgeTerms(
        EdgeParts(made.bus, made.registry, store, states, attachment, config.settings, queue, config.machines)
    )
    made.add_leased("edge", terms.run)
    made.details["edge"] = terms.describe
