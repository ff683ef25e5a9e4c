"""`windowbox edge`: runs Envoy for load balancers."""

from __future__ import annotations

from bus import streams
from bus.leases import members
from bus.leases.members import Members
from bus.transport.buckets import Bucket
from bus.workqueue.queue import Queue
from commands.roles import ccmconfig
from commands.roles.roleprocess import Process
from windowbox.errors import Malformed
from workers.loadbalancer.edge import edgestatus
from workers.loadbalancer.edge.controller import EdgeParts, EdgeTerms
from workers.loadbalancer.edgestate import POOL, States
from workers.loadbalancer.envoy import opening
from workers.loadbalancer.ipam.store import AddressStore
from workers.loadbalancer.links.addresses import Links

_KEPT = 60.0
"""Seconds for which a host counts as alive after an orderly end of its edge, if its Envoy serves on: the next
edge comes, as in an upgrade."""


async def edge(made: Process) -> None:
    """Run Envoy for load balancers. This role uses the bus only, no API server."""
    settings = made.settings.loadbalancer
    if not settings.ranges:
        raise Malformed("the edge needs loadbalancer.ranges: set it as for `windowbox work`")
    store = AddressStore(made.bus, settings.ranges, settings.quota)
    states = States(Bucket(made.bus, streams.EDGES), settings.host)
    made.tasks |= {"addresses": store.run, "edge states": states.bucket.run}
    await add_edge(made, store, states)


async def add_edge(made: Process, store: AddressStore, states: States) -> None:
    """Run Envoy while this process holds the lease of its host."""
    config = ccmconfig.applied(made.settings.loadbalancer)
    host = config.settings.host
    links, hosts = (Links(), Members(made.bus, edgestatus.LEASE)) if host else (None, None)
    attachment = await made.closing.enter_async_context(opening.opened(config.settings, links))
    terms = EdgeTerms(
        EdgeParts(
            made.bus,
            made.registry,
            store,
            states,
            attachment,
            config.settings,
            Queue(made.bus, POOL),
            config.machines,
            hosts,
            links,
        )
    )
    if hosts:
        made.tasks["edge hosts"] = hosts.run

    def kept() -> float:
        return _KEPT if host and terms.serves_on else 0.0

    made.add_leased(members.lease(edgestatus.LEASE, host), terms.run, kept=kept)
    made.details["edge"] = terms.describe
