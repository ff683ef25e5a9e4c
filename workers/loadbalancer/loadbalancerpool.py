"""The pool `loadbalancer`, put together."""

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
from workers.loadbalancer.service.addresses import Addresses
from workers.loadbalancer.service.mapping import ServiceMapping
from workers.loadbalancer.service.runs import ServiceRuns
from workers.loadbalancer.service.upkeep import AddressUpkeep
from workers.loadbalancer.service.world import ServiceWorld


@dataclass(frozen=True)
class BalancerParts(Parts):
    """What a process runs for Services, and what it shares with an edge of the same process."""

    store: AddressStore
    states: States


def enabled(common: Common) -> bool:
    """Whether there are addresses to give to Services."""
    return bool(common.loadbalancer.ranges)


async def assembled(common: Common, row: Served) -> BalancerParts:
    bus, clusters, settings, work = common.bus, common.clusters, common.loadbalancer, common.work
    queue = Queue(bus, row.pool)
    store = AddressStore(bus, settings.ranges, settings.quota)
    states = States(Bucket(bus, streams.EDGES))
    world = ServiceWorld(clusters, states)
    runs = ServiceRuns(world, Addresses(store, queue), settings)
    handler = ReconcileHandler(bus, clusters, runs, store.synced.wait)
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
