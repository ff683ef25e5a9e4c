"""The pool `loadbalancer`: reconciles Services."""

from __future__ import annotations

from dataclasses import dataclass

from bus import streams
from bus.transport.buckets import Bucket
from bus.workqueue.pool import Pool
from bus.workqueue.queue import Queue
from bus.workqueue.routing import Router
from windowbox.kinds import Served
from windowbox.telemetry import metrics
from workers.core.reconcile import ReconcileHandler
from workers.core.serving import Common, Parts
from workers.loadbalancer.edgestate import States
from workers.loadbalancer.ipam.store import AddressStore
from workers.loadbalancer.service.servicedoors import ServiceDoors
from workers.loadbalancer.service.servicemapping import ServiceMapping
from workers.loadbalancer.service.servicereconciler import ServiceReconciler
from workers.loadbalancer.service.upkeep import AddressUpkeep


@dataclass(frozen=True)
class BalancerParts(Parts):
    """The pool's parts, and what an edge of the same process shares with it."""

    store: AddressStore
    states: States


def enabled(common: Common) -> bool:
    """Whether there are addresses to allocate."""
    return bool(common.loadbalancer.ranges)


async def assembled(common: Common, row: Served) -> BalancerParts:
    bus, clusters, settings, work = common.bus, common.clusters, common.loadbalancer, common.work
    queue = Queue(bus, row.pool)
    store = AddressStore(bus, settings.ranges, settings.quota)
    states = States(Bucket(bus, streams.EDGES))
    reconciler = ServiceReconciler(ServiceDoors(store, queue, clusters, states), settings)
    handler = ReconcileHandler(bus, clusters, reconciler, store.synced.wait)
    upkeep = AddressUpkeep(bus, clusters, common.registry, store, states, settings, queue)

    async def measure() -> None:
        for usage in store.usage():
            metrics.addresses_used.labels(usage.range, usage.family).set(usage.used)
            metrics.addresses_total.labels(usage.range, usage.family).set(usage.total)

    return BalancerParts(
        pool=Pool(
            bus,
            row.pool,
            handler,
            concurrency=work.concurrency,
            ack_wait=work.ack_wait,
            sharing=lambda ref: ref.cluster,
        ),
        router=Router(bus, queue, ServiceMapping(settings.classes, store.has_address)),
        store=store,
        states=states,
        tasks={"addresses": store.run, "edge states": states.bucket.run},
        leased={"addresses": upkeep.run},
        gauges=(measure,),
    )
