"""The desired state of all load balancers, computed from the bus alone."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from operator import itemgetter
from typing import Any, NamedTuple

from bus.clusters.registry import Registry
from bus.transport.connection import Bus
from bus.views import View
from windowbox.models.loadbalancers import Family, LoadBalancer
from windowbox.models.objects import Object
from windowbox.models.refs import ENDPOINT_SLICES, NODES, RUNTIME, SERVICES, ObjectRef
from windowbox.settings.lbsettings import LoadBalancerSettings, matches
from workers.loadbalancer.edge import endpoints, nodeadmission, trafficnodes
from workers.loadbalancer.edge.nodeadmission import Admission
from workers.loadbalancer.edge.nodehealth import NodeHealth
from workers.loadbalancer.edge.trafficnodes import Backend, Ineligible
from workers.loadbalancer.ipam.entries import Held
from workers.loadbalancer.ipam.store import AddressStore
from workers.loadbalancer.spec import selection
from workers.loadbalancer.spec.demands import Demand, demand_in

LoadBalancers = Mapping[ObjectRef, LoadBalancer]

_Entries = tuple[tuple[str, Held], ...]
_Parts = tuple[Demand, _Entries, tuple[Backend, ...], tuple[Object, ...]]


class _Computed(NamedTuple):
    """A load balancer, if there is one, and the inputs that it was computed from."""

    parts: _Parts
    balancer: LoadBalancer | None


class _Common(NamedTuple):
    """Inputs that all load balancers share. If one has changed, all are recomputed."""

    clusters: set[str]
    backends: dict[str, tuple[Backend, ...]]
    readings: tuple[int, int]
    """Of the views of Services and of EndpointSlices."""


class DesiredState:
    """Computes load balancers from views of Services, nodes, EndpointSlices and addresses."""

    def __init__(
        self,
        bus: Bus,
        registry: Registry,
        store: AddressStore,
        settings: LoadBalancerSettings,
        changed: Callable[[], None],
        admission: Admission,
        health: NodeHealth | None = None,
    ) -> None:
        self._registry = registry
        self._admission = admission
        self._store = store
        self._settings = settings
        self._health = health
        self._services: View[Demand] = View(
            bus, SERVICES.id, self._demand, changed=changed, differs=lambda ref, *_: self._touched.add(ref)
        )
        self._nodes: View[Backend | Ineligible] = View(
            bus, NODES.id, lambda _, node: trafficnodes.backend(node), changed=changed
        )
        self._slices: View[Object] = View(
            bus,
            ENDPOINT_SLICES.id,
            self._slice,
            index=_service_of,
            changed=changed,
            differs=self._touch_service_of,
        )
        self._with_slices: set[str] = set()
        self._last: dict[str, dict[ObjectRef, LoadBalancer]] = {}
        self._all: LoadBalancers = {}
        self._computed: dict[ObjectRef, _Computed] = {}
        self._touched: set[ObjectRef] = set()
        """Services with a change since their load balancer was computed."""
        self._common: _Common | None = None
        self._backends: dict[str, list[Backend]] = {}
        self._admitted: dict[str, list[Backend]] = {}
        self._last_with_health: dict[str, list[Backend]] = {}

    @property
    def tasks(self) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
        """The tasks that follow the bus."""
        return {"services": self._services.run, "nodes": self._nodes.run, "slices": self._slices.run}

    async def complete(self) -> None:
        """Wait until all objects that the bus held at the start have been read."""
        await self._services.complete.wait()
        await self._nodes.complete.wait()
        await self._slices.complete.wait()
        await self._registry.complete.wait()

    def clusters(self) -> set[str]:
        return {RUNTIME, *self._registry.served()}

    def unlisted(self) -> set[str]:
        """The clusters whose listing is missing on the bus: not mirrored yet, or lost."""
        # EndpointSlices are not watched in all clusters: only a listing that was there can be lost.
        self._with_slices |= self._slices.listed
        listed = (self._services.listed & self._nodes.listed) - (self._with_slices - self._slices.listed)
        found: dict[str, list[Backend]] = {}
        for ref, node in self._nodes.items():
            if isinstance(node, Backend):
                found.setdefault(ref.cluster, []).append(node)
        undecided = {cluster for cluster, nodes in found.items() if self._admission.undecided(cluster, nodes)}
        return self.clusters() - listed | undecided

    def backends(self) -> dict[str, list[Backend]]:
        """The nodes that get traffic, by cluster. If the bus has lost them, the last known ones."""
        found: dict[str, list[Backend]] = {cluster: [] for cluster in self.clusters()}
        for ref, node in sorted(self._nodes.items(), key=lambda one: one[0].name):
            if ref.cluster in found and isinstance(node, Backend):
                found[ref.cluster].append(node)
        unheard = found.keys() - self._nodes.listed
        self._backends = found | {c: self._backends[c] for c in unheard & self._backends.keys()}
        self._admitted = self._admission.admitted(self._backends, unheard)
        return self._admitted

    def touch(self, ref: ObjectRef) -> None:
        """Recompute the Service's load balancer: its addresses have changed."""
        self._touched.add(ref)

    def load_balancers(self) -> LoadBalancers:
        """All load balancers; the same mapping as long as none changes. Those of unlisted clusters stay."""
        taking_part = self.clusters()
        last = {c: found for c, found in self._last.items() if c in taking_part}
        if self._store.is_complete():
            last |= self._compute(taking_part - self.unlisted())
        if last.keys() != self._last.keys() or any(last[c] is not self._last[c] for c in last):
            self._all = {ref: balancer for found in last.values() for ref, balancer in found.items()}
        self._last = last
        return self._all

    def no_backends(self, ref: ObjectRef, of: Family) -> str:
        """Why the Service has no node, or Pod, of this family to send traffic to, for people."""
        demand = self._services.get(ref)
        if demand and all(port.node_port is None for port in demand.ports):
            return trafficnodes.NO_PODS.format(family=of)
        admitted = {node.name: node.addresses for node in self._admitted.get(ref.cluster, ())}

        def judged(name: str, node: Backend | Ineligible) -> Backend | Ineligible:
            if isinstance(node, Ineligible) or of in admitted.get(name, {}):
                return node
            refused = of in node.addresses
            return Ineligible(name, trafficnodes.REFUSED if refused else trafficnodes.WITHOUT[of])

        nodes = [(one.name, node) for one, node in self._nodes.items() if one.cluster == ref.cluster]
        return trafficnodes.no_backends(
            [judged(name, node) for name, node in sorted(nodes, key=itemgetter(0))]
        )

    def _compute(self, clusters: set[str]) -> dict[str, dict[ObjectRef, LoadBalancer]]:
        """The load balancers of each of these clusters in which a load balancer has changed."""
        backends = {cluster: tuple(nodes) for cluster, nodes in self._checked_backends().items()}
        common = _Common(clusters, backends, (self._services.readings, self._slices.readings))
        before, self._common = self._common, None  # if this fails, all are recomputed
        touched, self._touched = self._touched, set()
        found: dict[str, dict[ObjectRef, LoadBalancer]] = {}
        if common != before:
            found = {cluster: {} for cluster in clusters}
            computed_all = {}
            for ref, demand in self._services.items():
                if computed := self._compute_one(ref, demand, common):
                    computed_all[ref] = computed
                    if computed.balancer:
                        found[ref.cluster][ref] = computed.balancer
            self._computed = computed_all
        else:
            for ref in touched:
                one = self._services.get(ref)
                computed = self._compute_one(ref, one, common) if one else None
                last = self._computed.pop(ref, None)
                if computed:
                    self._computed[ref] = computed
                balancer = computed.balancer if computed else None
                if balancer is not (last.balancer if last else None):
                    balancers = found.setdefault(ref.cluster, dict(self._last.get(ref.cluster, {})))
                    balancers.pop(ref, None)
                    if balancer:
                        balancers[ref] = balancer
        self._common = common
        return found

    def _checked_backends(self) -> Mapping[str, Iterable[Backend]]:
        """The nodes that get traffic, with their health. Only clusters with load balancers are checked."""
        backends, health = self.backends(), self._health
        if not health:
            return backends
        busy = {ref.cluster for ref, _ in self._services.items()} & backends.keys()
        health.follow({c: [a for node in backends[c] for a in node.addresses.values()] for c in busy})

        def with_health(node: Backend) -> Backend:
            unhealthy = (of for of, address in node.addresses.items() if health.unhealthy(address))
            return replace(node, unhealthy=frozenset(unhealthy))

        checked = {cluster: [with_health(node) for node in nodes] for cluster, nodes in backends.items()}
        # Unchanged lists stay the same objects: a thousand load balancers compare them.
        before = self._last_with_health
        self._last_with_health = {c: before[c] if before.get(c) == now else now for c, now in checked.items()}
        return self._last_with_health

    def _compute_one(self, ref: ObjectRef, demand: Demand, common: _Common) -> _Computed | None:
        """None if it gets no load balancer, or nothing is known of its cluster."""
        entries = self._store.entries(ref)
        if ref.cluster not in common.clusters or not entries:
            return None
        pods: tuple[Object, ...] = ()
        # If EndpointSlices are not watched, kube-proxy on the nodes finds the Pods.
        if ref.cluster in self._slices.listed or matches(ref.cluster, self._settings.direct):
            slices = self._slices.found((ref.namespace, ref.name))
            pods = tuple(slice for of, slice in slices if of.cluster == ref.cluster)
        backends = common.backends[ref.cluster]
        parts = (demand, entries, backends, pods)
        # If one of a thousand has changed, the others are not recomputed.
        before = self._computed.get(ref)
        if before and before.parts == parts:
            return before
        addresses = self._store.of(ref, demand.uid)
        if not addresses:
            return _Computed(parts, None)
        # Its own run refuses ports of Services that share the address: their clients must not wait for that.
        conflicts = {
            (address, place)
            for address, held in entries
            for other in held.others(ref)
            for place in other.ports
        }
        balancer = endpoints.load_balancer(ref, demand, addresses, backends, pods, conflicts)
        # An equal one stays the same object: caches find its listeners by identity.
        if before and before.balancer == balancer and before.balancer.digest == balancer.digest:
            return _Computed(parts, before.balancer)
        return _Computed(parts, balancer)

    def _slice(self, ref: ObjectRef, slice: Object) -> Object | None:
        of_service = _service_of(slice)[1]
        return nodeadmission.without_denied(ref.cluster, slice, self._settings) if of_service else None

    def _touch_service_of(self, ref: ObjectRef, *versions: Object | None) -> None:
        for namespace, name in (_service_of(one) for one in versions if one):
            self._touched.add(ObjectRef(ref.cluster, SERVICES.id, namespace, name))

    def _demand(self, ref: ObjectRef, service: Object) -> Demand | None:
        if not selection.is_ours(service, self._settings.classes) or service.deleting:
            return None
        return demand_in(ref.cluster, service, self._settings)


def _service_of(slice: Object) -> tuple[str, str]:
    """Namespace and name of the Service of an EndpointSlice."""
    return slice.namespace, str(slice.labels.get("kubernetes.io/service-name", ""))
