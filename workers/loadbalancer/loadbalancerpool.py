"""The pool `loadbalancer`: reconciles Services."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from bus import streams, subjects
from bus.messages import Announcement
from bus.transport.buckets import Bucket
from bus.workqueue.pool import Pool
from bus.workqueue.queue import Queue
from bus.workqueue.routing import PreviousVersion, Router
from clouds import table
from windowbox.kinds import Served
from windowbox.models.objects import Json, Object, mapping
from windowbox.models.refs import SERVICES, ObjectRef, is_provider_cluster
from windowbox.settings.lbsettings import matches
from windowbox.telemetry import metrics
from workers.core.cloudfaults import CloudFaults
from workers.core.reconcile import ReconcileHandler
from workers.core.serving import Common, Parts
from workers.loadbalancer.edgestate import States
from workers.loadbalancer.ipam.store import AddressStore
from workers.loadbalancer.service.servicedoors import ServiceDoors
from workers.loadbalancer.service.servicereconciler import ServiceReconciler
from workers.loadbalancer.service.servicestatus import CONDITIONS
from workers.loadbalancer.service.upkeep import AddressUpkeep
from workers.loadbalancer.spec import fields
from workers.loadbalancer.spec.selection import has_finalizer, is_ours, needs_cleanup

_COMPARED = (
    "loadBalancerSourceRanges",  # order matters, and no list is not an empty one
    "sessionAffinity",
    "sessionAffinityConfig",
    "loadBalancerIP",
    "externalTrafficPolicy",
    "healthCheckNodePort",
)
_CONDITION_FIELDS = ("type", "status", "reason", "message")
_PORT_FIELDS = ("name", "protocol", "port", "nodePort", "targetPort", "appProtocol")


class ServiceMapping:
    """Maps changes of Services to their keys. Changes of nodes reach Services by the edge's states."""

    kinds: tuple[str, ...] = (SERVICES.id,)
    owned: tuple[str, ...] = ()

    def __init__(
        self, clusters: Collection[str], classes: Collection[str], has_address: Callable[[ObjectRef], bool]
    ) -> None:
        self._clusters = clusters
        self._own_classes = classes
        self._classes = (*classes, *table.BALANCER_CLASSES)  # whatever the cloud of its cluster is
        self._has_address = has_address

    async def keys_for(self, change: Announcement, before: PreviousVersion) -> list[str]:
        key = subjects.without("object", change.stored.subject)
        ref = subjects.ref(key)
        if is_provider_cluster(ref.cluster) or not matches(ref.cluster, self._clusters):
            return []
        if change.omitted:
            return [key]
        if change.gone:
            # A Service that is no load balancer any more may have an address in its grace period.
            old = None if self._has_address(ref) else await before.object()
            return [key] if old is None or self._concerns_us(old) else []
        new = change.object()
        if change.operation != "MODIFIED":
            return [key] if self._concerns_us(new) else []
        return [key] if triggers(await before.object(), new, self._classes) else []

    def unfinished(self, object: Object) -> bool:
        if needs_cleanup(object):
            return True
        # Of a class of clouds, a run that was ours has left the finalizer.
        classes = self._classes if has_finalizer(object) else self._own_classes
        return is_ours(object, classes) and not mapping(object.status.get("loadBalancer")).get("ingress")

    def _concerns_us(self, service: Object) -> bool:
        return is_ours(service, self._classes) or needs_cleanup(service)


def triggers(old: Object | None, new: Object, classes: Collection[str]) -> bool:
    """The predicate: whether the change from `old` to `new` triggers a run; `old` is None if unknown.

    A superfluous run does no harm: it finds nothing to do. So our own writes of the status may trigger one.
    """
    if needs_cleanup(new):
        return True
    wanted = is_ours(new, classes)
    if old is None:
        return wanted
    before = is_ours(old, classes)
    if not (wanted and before):
        return wanted != before
    request_differs = _request(old.spec) != _request(new.spec) or old.annotations != new.annotations
    had_finalizer, had_conditions, had_ingress = has_finalizer(old), _conditions(old), _ingress(old)
    output_lost = (
        (had_ingress and had_ingress != _ingress(new))
        or (had_conditions and had_conditions != _conditions(new))
        or (had_finalizer and not has_finalizer(new))
    )
    return old.uid != new.uid or request_differs or bool(output_lost)


def _request(spec: Json) -> list[Any]:
    """The fields of a spec that its load balancer depends on."""
    return [
        *(spec.get(field) for field in _COMPARED),
        [
            [mapping(port).get(field) for field in _PORT_FIELDS] if mapping(port) else port
            for port in fields.items(spec.get("ports"))
        ],
        fields.items(spec.get("externalIPs")),
        len(fields.items(spec.get("ipFamilies"))),  # the API lets only their number change
    ]


def _conditions(service: Object) -> list[Any]:
    """Our conditions, without order and times."""
    found = fields.mappings(service.status.get("conditions"))
    ours = [one for one in found if one.get("type") in CONDITIONS]
    return sorted([repr(one.get(field)) for field in _CONDITION_FIELDS] for one in ours)


def _ingress(service: Object) -> list[Any]:
    return fields.items(mapping(service.status.get("loadBalancer")).get("ingress"))


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
    states = States(Bucket(bus, streams.EDGES), common.loadbalancer.host)
    doors = ServiceDoors(store, queue, clusters, states, common.nameserver)
    reconciler = ServiceReconciler(doors, settings, CloudFaults(bus))

    async def ready() -> None:
        await store.synced.wait()
        await common.registry.complete.wait()  # it names the clouds of clusters

    handler = ReconcileHandler(bus, clusters, reconciler, ready)
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
        router=Router(bus, queue, ServiceMapping(settings.clusters, settings.classes, store.has_address)),
        store=store,
        states=states,
        tasks={"addresses": store.run, "edge states": states.bucket.run},
        leased={"addresses": upkeep.run},
        gauges=(measure,),
    )
