"""The edge, put together: what the process runs that holds the lease `edge`."""

from __future__ import annotations

from contextlib import AsyncExitStack

from bus.connection import Bus
from bus.queue import Queue
from bus.registry import Registry
from windowbox.clients.envoy import opening
from windowbox.models.lbsettings import LoadBalancerSettings
from workers.edge.controller import EdgeParts, EdgeTerms
from workers.loadbalancer.edgestate import POOL, States
from workers.loadbalancer.ipam.store import AddressStore
from workers.membership import ccmconfig
from workers.serving import Background

LEASE = "edge"


async def assembled(
    bus: Bus,
    registry: Registry,
    store: AddressStore,
    states: States,
    settings: LoadBalancerSettings,
    closing: AsyncExitStack,
) -> Background:
    config = ccmconfig.applied(settings)
    attachment = await closing.enter_async_context(opening.opened(config.settings))
    queue = Queue(bus, POOL)
    terms = EdgeTerms(
        EdgeParts(bus, registry, store, states, attachment, config.settings, queue, config.machines)
    )
    return Background(leased={LEASE: terms.run}, details={"edge": terms.describe})
