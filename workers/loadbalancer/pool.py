"""The pool `loadbalancer`, put together."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from bus import streams
from bus.buckets import Bucket
from bus.connection import Bus
from bus.pool import Pool
from bus.queue import Queue
from bus.registry import MachinePlace, Registry
from bus.routing import Router
from windowbox.clients.clusters import Clusters
from windowbox.clients.envoy.attachments import Attachment
from windowbox.models.lbsettings import LoadBalancerSettings
from workers.edge.controller import EdgeController
from workers.loadbalancer.edgestate import States
from workers.loadbalancer.ipam.store import AddressStore
from workers.loadbalancer.service.addresses import Addresses
from workers.loadbalancer.service.handler import ServiceHandler
from workers.loadbalancer.service.mapping import ServiceMapping
from workers.loadbalancer.service.runs import ServiceRuns
from workers.loadbalancer.service.world import ServiceWorld

POOL = "loadbalancer"


class WorkSettings(Protocol):
    """What the pool needs to know of the settings of workers."""

    @property
    def concurrency(self) -> int: ...
    @property
    def ack_wait(self) -> float: ...


@dataclass(frozen=True)
class Parts:
    """What a process has to run."""

    pool: Pool
    router: Router
    owner: EdgeController
    store: AddressStore
    tasks: dict[str, Callable[[], Coroutine[Any, Any, None]]]


def assembled(
    bus: Bus,
    clusters: Clusters,
    registry: Registry,
    attachment: Attachment,
    settings: LoadBalancerSettings,
    work: WorkSettings,
    machines: MachinePlace | None = None,
) -> Parts:
    queue = Queue(bus, POOL)
    store = AddressStore(bus, settings.ranges)
    states = States(Bucket(bus, streams.EDGES))
    world = ServiceWorld(bus, clusters, states)
    runs = ServiceRuns(world, Addresses(store, queue), settings)
    handler = ServiceHandler(bus, clusters, world, store, runs)
    return Parts(
        pool=Pool(bus, POOL, handler, concurrency=work.concurrency, ack_wait=work.ack_wait),
        router=Router(bus, queue, ServiceMapping(settings.classes)),
        owner=EdgeController(bus, clusters, registry, store, states, attachment, settings, queue, machines),
        store=store,
        tasks={"addresses": store.run, "edge states": states.bucket.run},
    )
