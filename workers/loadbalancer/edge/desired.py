"""The desired state of all load balancers, computed from the bus alone."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from bus.clusters.registry import Registry
from bus.transport.connection import Bus
from bus.views import View
from windowbox.models.loadbalancers import Family, LoadBalancer
from windowbox.models.objects import Object
from windowbox.models.refs import ENDPOINT_SLICES, NODES, RUNTIME, SERVICES, ObjectRef
from windowbox.settings.lbsettings import LoadBalancerSettings, matches
from workers.loadbalancer.edge import nodes, wanted
from workers.loadbalancer.edge.admission import Admission
from workers.loadbalancer.edge.nodehealth import NodeHealth
from workers.loadbalancer.edge.nodes import Backend, Ineligible
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
    """What all load balancers are computed from besides. If it has changed, all are computed again."""

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
            bus, NODES.id, lambda _, node: nodes.backend(node), changed=changed
        )
        self._slices: View[Object] = View(
            bus,
            ENDPOINT_SLICES.id,
            lambda _, slice: _slice(slice),
            index=_service_of,
            changed=changed,
            differs=self._touch_service_of,
        )
        self._with_slices: set[str] = set()
        self._last: dict[str, dict[ObjectRef, LoadBalancer]] = {}
        self._all: LoadBalancers = {}
        self._computed: dict[ObjectRef, _Computed] = {}
        self._touched: set[ObjectRef] = set()
        """Services of which something has changed since they were computed."""
        self._common: _Common | None = None
        self._backends: dict[str, list[Backend]] = {}
        self._admitted: dict[str, list[Backend]] = {}
        self._last_with_health: dict[str, list[Backend]] = {}

    @property
    def tasks(self) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
        """The tasks that follow the bus."""
        return {"services": self._services.run, "nodes": self._nodes.run, "slices": self._slices.run}

    async def complete(self) -> None:
        """Wait until all that the bus held at the start has been read."""
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
        return self.clusters() - listed | self._undecided()

    def _undecided(self) -> set[str]:
        found: dict[str, list[Backend]] = {}
        for ref, node in self._nodes.items():
            if isinstance(node, Backend):
                found.setdefault(ref.cluster, []).append(node)
        return {
            cluster for cluster, backends in found.items() if self._admission.undecided(cluster, backends)
        }

    def backends(self) -> dict[str, list[Backend]]:
        """The nodes that get traffic, by cluster. If the bus has lost them, as they were last."""
        found: dict[str, list[Backend]] = {cluster: [] for cluster in self.clusters()}
        for ref, node in sorted(self._nodes.items(), key=lambda one: one[0].name):
            if ref.cluster in found and isinstance(node, Backend):
                found[ref.cluster].append(node)
        unheard = found.keys() - self._nodes.listed
        self._backends = found | {c: self._backends[c] for c in unheard & self._backends.keys()}
        self._admitted = self._admission.admitted(self._backends)
        return self._admitted

    def _with_node_health(
        self, backends: Mapping[str, Iterable[Backend]], health: NodeHealth
    ) -> dict[str, list[Backend]]:
        """The same nodes with their health. Only clusters with load balancers are checked."""
        busy = {ref.cluster for ref, _ in self._services.items()} & backends.keys()
        health.follow({c: [a for node in backends[c] for a in node.addresses.values()] for c in busy})
        checked = {
            cluster: [_with_health(node, health) for node in nodes] for cluster, nodes in backends.items()
        }
        # Unchanged lists stay the same objects: a thousand load balancers compare them.
        before = self._last_with_health
        self._last_with_health = {c: before[c] if before.get(c) == now else now for c, now in checked.items()}
        return self._last_with_health

    def touch(self, ref: ObjectRef) -> None:
        """Compute the Service's load balancer again: its addresses are others."""
        self._touched.add(ref)

    def load_balancers(self) -> LoadBalancers:
        """All load balancers; the same mapping as long as none changes. Those of unlisted clusters stay as
        they were last."""
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
            return nodes.NO_PODS.format(family=of)
        return nodes.no_backends(self._nodes_of(ref.cluster, of))

    def _compute(self, clusters: set[str]) -> dict[str, dict[ObjectRef, LoadBalancer]]:
        """The load balancers of these clusters. Only those are computed of which something has changed."""
        found = self._with_node_health(self.backends(), self._health) if self._health else self.backends()
        backends = {cluster: tuple(nodes) for cluster, nodes in found.items()}
        common = _Common(clusters, backends, (self._services.readings, self._slices.readings))
        before, self._common = self._common, None  # if this fails, all are computed again
        balancers = self._compute_touched(common) if common == before else self._compute_all(common)
        self._common = common
        return balancers

    def _compute_all(self, common: _Common) -> dict[str, dict[ObjectRef, LoadBalancer]]:
        self._touched = set()
        made = {ref: self._compute_one(ref, demand, common) for ref, demand in self._services.items()}
        self._computed = {ref: computed for ref, computed in made.items() if computed}
        balancers: dict[str, dict[ObjectRef, LoadBalancer]] = {c: {} for c in common.clusters}
        for ref, computed in self._computed.items():
            if computed.balancer:
                balancers[ref.cluster][ref] = computed.balancer
        return balancers

    def _compute_touched(self, common: _Common) -> dict[str, dict[ObjectRef, LoadBalancer]]:
        touched, self._touched = self._touched, set()
        changed: dict[str, dict[ObjectRef, LoadBalancer]] = {}
        for ref in touched:
            demand = self._services.get(ref)
            computed = self._compute_one(ref, demand, common) if demand else None
            before = self._computed.pop(ref, None)
            if computed:
                self._computed[ref] = computed
            balancer = computed.balancer if computed else None
            if balancer is not (before.balancer if before else None):
                balancers = changed.setdefault(ref.cluster, dict(self._last.get(ref.cluster, {})))
                balancers.pop(ref, None)
                if balancer:
                    balancers[ref] = balancer
        return changed

    def _compute_one(self, ref: ObjectRef, demand: Demand, common: _Common) -> _Computed | None:
        """None if it gets no load balancer, or nothing is known of its cluster."""
        entries = self._store.entries(ref)
        if ref.cluster not in common.clusters or not entries:
            return None
        pods = self._slices_of(ref) if self._knows_pods(ref.cluster) else ()
        backends = common.backends[ref.cluster]
        parts = (demand, entries, backends, pods)
        # If one of a thousand has changed, the others are not computed again.
        before = self._computed.get(ref)
        if before and before.parts == parts:
            return before
        addresses = self._store.of(ref, demand.uid)
        if not addresses:
            return _Computed(parts, None)
        conflicts = _ports_of_others(ref, entries)
        balancer = wanted.load_balancer(ref, demand, addresses, backends, pods, conflicts)
        # An equal one stays the same object: caches that have its listeners find them by identity.
        if before and before.balancer == balancer and before.balancer.digest == balancer.digest:
            return _Computed(parts, before.balancer)
        return _Computed(parts, balancer)

    def _nodes_of(self, cluster: str, of: Family) -> list[Backend | Ineligible]:
        """The cluster's nodes; those without an address of this family get no traffic there."""
        found = [(ref.name, node) for ref, node in self._nodes.items() if ref.cluster == cluster]
        admitted = {node.name: node.addresses for node in self._admitted.get(cluster, ())}

        def judged(name: str, node: Backend | Ineligible) -> Backend | Ineligible:
            if isinstance(node, Ineligible) or of in admitted.get(name, {}):
                return node
            return Ineligible(name, nodes.REFUSED if of in node.addresses else nodes.WITHOUT[of])

        return [judged(name, node) for name, node in sorted(found, key=lambda one: one[0])]

    def _slices_of(self, ref: ObjectRef) -> tuple[Object, ...]:
        found = self._slices.found((ref.namespace, ref.name))
        return tuple(slice for of, slice in found if of.cluster == ref.cluster)

    def _touch_service_of(self, ref: ObjectRef, *versions: Object | None) -> None:
        for namespace, name in (_service_of(one) for one in versions if one):
            self._touched.add(ObjectRef(ref.cluster, SERVICES.id, namespace, name))

    def _knows_pods(self, cluster: str) -> bool:
        # If EndpointSlices are not watched, kube-proxy on the nodes finds the Pods.
        return cluster in self._slices.listed or matches(cluster, self._settings.direct)

    def _demand(self, ref: ObjectRef, service: Object) -> Demand | None:
        if not selection.is_ours(service, self._settings.classes) or service.deleting:
            return None
        return demand_in(ref.cluster, service, self._settings)


def _ports_of_others(ref: ObjectRef, entries: Iterable[tuple[str, Held]]) -> set[tuple[str, str]]:
    """Addresses and places (`80/TCP`) that are allocated to Services which share an address with `ref`.

    `ref` may ask for them all the same: its own run refuses them, clients of the other do not wait.
    """
    return {
        (address, place) for address, held in entries for other in held.others(ref) for place in other.ports
    }


def _with_health(node: Backend, health: NodeHealth) -> Backend:
    unhealthy = (of for of, address in node.addresses.items() if health.unhealthy(address))
    return replace(node, unhealthy=frozenset(unhealthy))


def _slice(slice: Object) -> Object | None:
    return slice if _service_of(slice)[1] else None


def _service_of(slice: Object) -> tuple[str, str]:
    """Namespace and name of the Service whose endpoints these are."""
    return slice.namespace, str(slice.labels.get("kubernetes.io/service-name", ""))
