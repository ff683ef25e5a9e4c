"""The pool `loadbalancer`, put together."""

from __future__ import annotations

from dataclasses import dataclass

from bus import streams
from bus.buckets import Bucket
from bus.pool import Pool
from bus.queue import Queue
from bus.registry import MachinePlace
from bus.routing import Router
from windowbox.clients.envoy import opening
from windowbox.clients.envoy.attachments import Attachment
from windowbox.kinds import Served
from windowbox.models.lbsettings import LoadBalancerSettings
from windowbox.telemetry import metrics
from workers.edge import takeover
from workers.edge.controller import EdgeController
from workers.handler import ReconcilingHandler
from workers.loadbalancer.edgestate import States
from workers.loadbalancer.ipam.store import AddressStore
from workers.loadbalancer.service.addresses import Addresses
from workers.loadbalancer.service.mapping import ServiceMapping
from workers.loadbalancer.service.runs import ServiceRuns
from workers.loadbalancer.service.world import ServiceWorld
from workers.serving import Common, Parts, Tasks


@dataclass(frozen=True)
class BalancerParts(Parts):
    """What a process runs for load balancers, the edge included."""

    owner: EdgeController
    store: AddressStore


def enabled(common: Common) -> bool:
    """Whether there are addresses to give to Services."""
    return bool(common.loadbalancer.ranges)


async def assembled(common: Common, row: Served) -> BalancerParts:
    found = takeover.taken_over(common.loadbalancer)
    attachment = await common.closing.enter_async_context(opening.opened(found.settings))
    tasks: Tasks = {}
    if member := found.infrastructure:
        tasks["infrastructure"] = lambda: takeover.join(common.registry, member)
    return parts(common, row, attachment, found.settings, found.machines, tasks)


def parts(
    common: Common,
    row: Served,
    attachment: Attachment,
    settings: LoadBalancerSettings,
    machines: MachinePlace | None,
    tasks: Tasks,
) -> BalancerParts:
    bus, clusters, registry, work = common.bus, common.clusters, common.registry, common.work
    queue = Queue(bus, row.pool)
    store = AddressStore(bus, settings.ranges)
    states = States(Bucket(bus, streams.EDGES))
    world = ServiceWorld(bus, clusters, states)
    runs = ServiceRuns(world, Addresses(store, queue), settings)
    handler = ReconcilingHandler(bus, clusters, runs, store.complete.wait)
    edge = EdgeController(bus, clusters, registry, store, states, attachment, settings, queue, machines)

    async def measure() -> None:
        for usage in store.usage():
            metrics.addresses_used.labels(usage.range, usage.family).set(usage.used)
            metrics.addresses_total.labels(usage.range, usage.family).set(usage.total)

    return BalancerParts(
        pool=Pool(bus, row.pool, handler, concurrency=work.concurrency, ack_wait=work.ack_wait),
        router=Router(bus, queue, ServiceMapping(settings.classes)),
        owner=edge,
        store=store,
        tasks={"addresses": store.run, "edge states": states.bucket.run, **tasks},
        leased={"edge": edge.run},
        details={"edge": edge.describe},
        gauges=(measure,),
    )
