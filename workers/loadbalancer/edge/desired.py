"""The desired state of all load balancers, computed from the bus alone.

A change recomputes what depends on it: a Service, the nodes of a cluster, or the load balancers of a cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from bus.clusters.registry import Registry
from bus.leases import guard
from bus.transport.connection import Bus
from bus.views import View
from windowbox.models.cloudfacts import CloudFacts
from windowbox.models.loadbalancers import Family, LoadBalancer
from windowbox.models.objects import Object
from windowbox.models.refs import ENDPOINT_SLICES, NODES, RUNTIME, SERVICES, ObjectRef
from windowbox.settings.lbsettings import LoadBalancerSettings, matches
from workers.loadbalancer.edge import endpoints, nodeadmission, trafficnodes
from workers.loadbalancer.edge.endpoints import ClusterNodes
from workers.loadbalancer.edge.nodeadmission import Admission
from workers.loadbalancer.edge.nodehealth import NodeHealth
from workers.loadbalancer.edge.trafficnodes import Backend, Ineligible
from workers.loadbalancer.ipam.entries import Held
from workers.loadbalancer.ipam.store import AddressStore
from workers.loadbalancer.spec import cloudterms, selection
from workers.loadbalancer.spec.demands import MAX_ENDPOINTS, Demand, demand_in
from workers.loadbalancer.tracked import LoadBalancers, Tracked

_AT_ONCE = 100
"""Load balancers that are computed before the event loop gets its turn."""
_NO_NODES = ClusterNodes((), checked=True)
_BEYOND = (
    f"all Services of a cluster may have {MAX_ENDPOINTS} endpoints (ports times nodes), and those that have "
    "had their address for longer come first: ask for fewer ports, or remove other Services or nodes"
)


class _Service(NamedTuple):
    cluster: str
    demand: Demand


class _Node(NamedTuple):
    cluster: str
    found: Backend | Ineligible


_Common = tuple[tuple[int, int], tuple[int, int]]
"""The readings of Services and of EndpointSlices of a cluster."""


class _Settled(NamedTuple):
    """The nodes of a cluster."""

    admitted: list[Backend]
    nodes: ClusterNodes
    """Those of them that were checked once, or that Envoy checks."""


class _Inputs(NamedTuple):
    """What a load balancer is computed from."""

    demand: Demand
    entries: tuple[tuple[str, Held], ...]
    addresses: Mapping[Family, str]
    pods: tuple[Object, ...]
    check: int | None
    """The port that Envoy checks on nodes; None: the edge checks them."""

    def size(self, nodes: ClusterNodes) -> int:
        """Its endpoints before these nodes, if all its ports are served."""
        return endpoints.size(self.demand, self.addresses, nodes, self.pods)

    def since(self, ref: ObjectRef) -> float:
        """When the Service got its first address."""
        return min(one.since for _, held in self.entries if (one := held.of(ref)))


class _Computed(NamedTuple):
    """A load balancer, if there is one, and the inputs that it was computed from."""

    inputs: _Inputs
    size: int
    refused: bool
    """It is beyond the bound of its cluster."""
    balancer: LoadBalancer | None


@dataclass
class _Cluster:
    """All load balancers of a cluster."""

    computed: dict[ObjectRef, _Computed] = field(default_factory=dict)
    nodes: ClusterNodes = _NO_NODES
    size: int = 0
    """Their endpoints, if all were served."""
    refused: frozenset[ObjectRef] = frozenset()
    """Those beyond the bound."""


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
        self._changed = changed
        self._with_slices: set[str] = set()
        self._all: LoadBalancers = Tracked()
        self._known: dict[str, _Cluster] = {}
        self._touched: set[ObjectRef] = set()
        """Services with a change since their load balancer was computed."""
        self._seen: dict[str, _Common] = {}
        """By cluster, what its load balancers have in common. If it has changed, all are computed again."""
        self._nodes_outdated = True
        self._moved: set[str] = set()
        """Clusters with a change of a node since their nodes were read."""
        self._read: dict[str, tuple[tuple[int, int], list[Backend]]] = {}
        self._backends: dict[str, list[Backend]] = {}
        self._admitted: dict[str, list[Backend]] = {}
        self._nodes_of: dict[str, _Settled] = {}
        self._followed: dict[str, list[Backend]] = {}
        self._clusters_of: dict[str, set[str]] = {}
        """By address of a node whose health is checked."""
        self._unsettled: set[str] = set()
        """Clusters with a node whose health has changed."""
        self._clouds: dict[str, CloudFacts | None] = {}
        """The cloud of each cluster as its Services were read."""
        self._view(bus)

    def _view(self, bus: Bus) -> None:
        """Prepare the views of the bus."""
        self._services: View[_Service] = View(
            bus,
            SERVICES.id,
            self._asked,
            index=lambda one: one.cluster,
            changed=self._changed,
            differs=lambda ref, *_: self._touched.add(ref),
        )
        self._nodes: View[_Node] = View(
            bus,
            NODES.id,
            lambda ref, node: _Node(ref.cluster, trafficnodes.backend(node)),
            index=lambda one: one.cluster,
            changed=self.look_at_nodes_again,
            differs=lambda ref, *_: self._moved.add(ref.cluster),
        )
        self._slices: View[Object] = View(
            bus,
            ENDPOINT_SLICES.id,
            self._slice,
            index=_service_of,
            changed=self._changed,
            differs=self._touch_service_of,
        )

    @property
    def tasks(self) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
        """The tasks that follow the bus."""
        return {"services": self._follow_services, "nodes": self._nodes.run, "slices": self._slices.run}

    async def _follow_services(self) -> None:
        """Follow the Services; read them again if the cloud of a cluster is another now. Never returns."""
        await self._registry.complete.wait()

        def look() -> None:
            members = self._registry.members
            if any(members[c].cloud != cloud for c, cloud in self._clouds.items() if c in members):
                self._clouds.clear()
                self._services.read_again()

        with contextlib.ExitStack() as stack:
            stack.callback(self._registry.on_change(look))
            await self._services.run()

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
        clusters = self.clusters()
        undecided = {one for one in clusters if self._admission.undecided(one, self._backends_in(one))}
        return clusters - listed | undecided

    def backends(self) -> dict[str, list[Backend]]:
        """The nodes that get traffic, by cluster. If the bus has lost them, the last known ones."""
        if self._nodes_outdated or self._admitted.keys() != self.clusters():
            self._read = {c: self._read_nodes(c) for c in self.clusters()}
            self._moved.clear()
            found = {cluster: nodes for cluster, (_, nodes) in self._read.items()}
            unheard = found.keys() - self._nodes.listed
            self._backends = found | {c: self._backends[c] for c in unheard & self._backends.keys()}
            admitted, before = self._admission.admitted(self._backends, unheard), self._admitted
            # Unchanged lists stay the same objects.
            self._admitted = {c: before[c] if before.get(c) == now else now for c, now in admitted.items()}
            self._nodes_outdated = False
        return self._admitted

    def look_at_nodes_again(self) -> None:
        """Nodes, their machines, or clusters have changed."""
        self._nodes_outdated = True
        self._changed()

    @property
    def unhealthy(self) -> frozenset[str]:
        """The addresses of nodes that fail health checks."""
        return self._health.failing if self._health else frozenset()

    def look_at_health_again(self, address: str) -> None:
        """The health of the nodes at this address has changed."""
        for cluster in self._clusters_of.get(address, ()):
            self._unsettled.add(cluster)
        self._changed()

    def touch(self, ref: ObjectRef) -> None:
        """Recompute the Service's load balancer: its addresses have changed."""
        self._touched.add(ref)

    async def load_balancers(self) -> LoadBalancers:
        """All load balancers: always the same mapping. Those of unlisted clusters stay."""
        taking_part = self.clusters()
        for cluster in self._known.keys() - taking_part:
            for ref in self._known.pop(cluster).computed:
                self._all.put(ref, None)
        if self._store.is_complete():
            await self._compute(taking_part - self.unlisted())
        return self._all

    def no_backends(self, ref: ObjectRef, of: Family) -> str:
        """Why the Service has no node, or Pod, of this family to send traffic to, for people."""
        service = self._services.get(ref)
        if service and all(port.node_port is None for port in service.demand.ports):
            return trafficnodes.NO_PODS.format(family=of)
        admitted = {node.name: node.addresses for node in self._admitted.get(ref.cluster, ())}

        def judged(name: str, node: Backend | Ineligible) -> Backend | Ineligible:
            if isinstance(node, Ineligible) or of in admitted.get(name, {}):
                return node
            refused = of in node.addresses
            return Ineligible(name, trafficnodes.REFUSED if refused else trafficnodes.WITHOUT[of])

        nodes = [(one.name, node.found) for one, node in self._nodes.found(ref.cluster)]
        return trafficnodes.no_backends(
            [judged(name, node) for name, node in sorted(nodes, key=itemgetter(0))]
        )

    async def _compute(self, clusters: set[str]) -> None:
        """Compute the load balancers of these clusters that have changed."""
        seen, self._seen = self._seen, {}  # if this fails, all are computed again
        touched: dict[str, set[ObjectRef]] = {}
        for ref in self._touched:
            touched.setdefault(ref.cluster, set()).add(ref)
        self._touched = set()
        all_nodes = self._checked_nodes()
        now = {}
        for cluster in clusters:
            nodes = all_nodes.get(cluster, _NO_NODES)
            reading = (self._services.reading(cluster), self._slices.reading(cluster))
            refs, known = touched.get(cluster, set()), self._known.setdefault(cluster, _Cluster())
            if seen.get(cluster) != reading:
                refs |= {*known.computed, *self._services.refs(cluster)}
            with guard.isolated("edge", f"cluster {cluster}"):
                if refs or nodes is not known.nodes:
                    await self._compute_some(known, refs, nodes)
                now[cluster] = reading  # else all of it is computed again
        self._seen = now

    async def _compute_some(self, known: _Cluster, refs: set[ObjectRef], nodes: ClusterNodes) -> None:
        """Compute the load balancers of a cluster after a change of these Services, or of its nodes."""
        before, fresh, computed = known.computed, dict[ObjectRef, _Inputs](), dict[ObjectRef, _Computed]()
        async for ref in _in_slices(refs):
            if inputs := self._inputs(ref, nodes):
                fresh[ref] = inputs
        # All others have the same inputs as before.
        retargeted = before.keys() - refs if nodes is not known.nodes else frozenset[ObjectRef]()
        sizes: dict[ObjectRef, int] = {}
        async for ref in _in_slices([*fresh, *retargeted]):
            sizes[ref] = (fresh.get(ref) or before[ref].inputs).size(nodes)
        size = known.size - sum(before[ref].size for ref in (*refs, *retargeted) if ref in before)
        size += sum(sizes.values())
        refused = frozenset[ObjectRef]()
        if size > MAX_ENDPOINTS:
            kept = {ref: (one.inputs, one.size) for ref, one in before.items() if ref not in refs}
            kept |= {ref: (before[ref].inputs, sizes[ref]) for ref in retargeted}
            refused = _beyond_bound(kept | {ref: (one, sizes[ref]) for ref, one in fresh.items()})
        turned = (known.refused ^ refused) - refs
        async for ref in _in_slices({*fresh, *retargeted, *turned & before.keys()}):
            inputs, last = fresh.get(ref) or before[ref].inputs, before.get(ref)
            made = _computed(ref, inputs, nodes, last, refused=ref in refused)
            computed[ref] = _Computed(inputs, sizes.get(ref, last.size if last else 0), ref in refused, made)
        # From here on, nothing can fail: what is known fits together.
        known.nodes, known.size, known.refused = nodes, size, refused
        gone = refs - fresh.keys()
        for ref in gone:
            before.pop(ref, None)
        before |= computed
        self._all.put_all(dict.fromkeys(gone) | {ref: one.balancer for ref, one in computed.items()})

    def _inputs(self, ref: ObjectRef, nodes: ClusterNodes) -> _Inputs | None:
        """None if the Service gets no load balancer."""
        service, entries = self._services.get(ref), self._store.entries(ref)
        if service is None or not entries:
            return None
        pods: tuple[Object, ...] = ()
        # If EndpointSlices are not watched, kube-proxy on the nodes finds the Pods.
        if ref.cluster in self._slices.listed or matches(ref.cluster, self._settings.direct):
            slices = self._slices.found((ref.namespace, ref.name))
            pods = tuple(slice for of, slice in slices if of.cluster == ref.cluster)
        demand = service.demand
        addresses = self._store.of(ref, demand.uid)
        return _Inputs(demand, entries, addresses, pods, nodes.check(demand.health_port))

    # Nodes.

    def _read_nodes(self, cluster: str) -> tuple[tuple[int, int], list[Backend]]:
        """The nodes of a cluster by name, and the reading of the view that they are from."""
        reading, before = self._nodes.reading(cluster), self._read.get(cluster)
        if before and before[0] == reading and cluster not in self._moved:
            return before
        return reading, sorted(self._backends_in(cluster), key=attrgetter("name"))

    def _backends_in(self, cluster: str) -> Iterator[Backend]:
        return (one.found for _, one in self._nodes.found(cluster) if isinstance(one.found, Backend))

    def _checked_nodes(self) -> Mapping[str, ClusterNodes]:
        """The nodes of each cluster with Services. The same objects as long as nothing of them changes."""
        busy = {c: nodes for c, nodes in self.backends().items() if any(self._services.found(c))}
        self._follow(busy)
        unsettled, self._unsettled = self._unsettled, set()
        for cluster in self._nodes_of.keys() - busy.keys():
            del self._nodes_of[cluster]
        for cluster, admitted in busy.items():
            before = self._nodes_of.get(cluster)
            if before is None or before.admitted is not admitted or cluster in unsettled:
                # A new node without traffic, and soon again with it, would be two changes of all endpoints.
                backends = (one for one in admitted if not self._awaits_check(one))
                nodes = ClusterNodes(backends, checked=self._health is not None)
                if before and before.nodes.backends == nodes.backends:
                    nodes = before.nodes
                self._nodes_of[cluster] = _Settled(admitted, nodes)
        return {cluster: one.nodes for cluster, one in self._nodes_of.items()}

    def _follow(self, busy: Mapping[str, list[Backend]]) -> None:
        """Check the health of these nodes, by cluster."""
        before = self._followed
        same = busy.keys() == before.keys() and all(nodes is before[c] for c, nodes in busy.items())
        if self._health is None or same:
            return
        found = {c: [a for node in nodes for a in node.addresses.values()] for c, nodes in busy.items()}
        self._health.follow(found)
        self._followed = dict(busy)
        self._clusters_of = {}
        for cluster, addresses in found.items():
            for address in addresses:
                self._clusters_of.setdefault(address, set()).add(cluster)

    def _awaits_check(self, node: Backend) -> bool:
        health = self._health
        return health is not None and any(map(health.awaits_check, node.addresses.values()))

    # Views.

    def _slice(self, ref: ObjectRef, slice: Object) -> Object | None:
        of_service = _service_of(slice)[1]
        return nodeadmission.without_denied(ref.cluster, slice, self._settings) if of_service else None

    def _touch_service_of(self, ref: ObjectRef, *versions: Object | None) -> None:
        for namespace, name in (_service_of(one) for one in versions if one):
            self._touched.add(ObjectRef(ref.cluster, SERVICES.id, namespace, name))

    def _asked(self, ref: ObjectRef, service: Object) -> _Service | None:
        if not matches(ref.cluster, self._settings.clusters):
            return None
        cloud = self._clouds[ref.cluster] = self._registry.cloud(ref.cluster)
        classes = (*self._settings.classes, *cloudterms.classes(cloud))
        if not selection.is_ours(service, classes) or service.deleting:
            return None
        return _Service(ref.cluster, demand_in(ref.cluster, service, self._settings, cloud))


def _computed(
    ref: ObjectRef, inputs: _Inputs, nodes: ClusterNodes, before: _Computed | None, *, refused: bool
) -> LoadBalancer | None:
    """The load balancer of a Service. An equal one stays the same object: caches find it by identity."""
    demand = inputs.demand
    if not inputs.addresses:
        return None
    same = before and before.refused == refused and before.inputs == inputs and not demand.hairpin
    if same and before and (last := before.balancer):
        # Nodes change often: the listeners stay.
        return last if last.targets is nodes.targets else replace(last, targets=nodes.targets)
    if refused:
        balancer = endpoints.refused(ref, demand, inputs.addresses, nodes, _BEYOND)
    else:
        # Its own run refuses ports of Services that share the address: their clients must not wait for that.
        conflicts = {
            (address, place)
            for address, held in inputs.entries
            for other in held.others(ref)
            for place in other.ports
        }
        balancer = endpoints.load_balancer(ref, demand, inputs.addresses, nodes, inputs.pods, conflicts)
    if before and before.balancer == balancer and before.balancer.digest == balancer.digest:
        return before.balancer
    return balancer


def _beyond_bound(services: Mapping[ObjectRef, tuple[_Inputs, int]]) -> frozenset[ObjectRef]:
    """The Services of a cluster that are refused, because all together would have too many endpoints."""
    room, refused = MAX_ENDPOINTS, set()
    for ref, (_, size) in sorted(services.items(), key=lambda item: (item[1][0].since(item[0]), item[0])):
        if size > room:
            refused.add(ref)
        else:
            room -= size
    return frozenset(refused)


async def _in_slices(refs: Collection[ObjectRef]) -> AsyncIterator[ObjectRef]:
    """These Services. The event loop gets its turn in between."""
    for number, ref in enumerate(refs):
        if number % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)
        yield ref


def _service_of(slice: Object) -> tuple[str, str]:
    """Namespace and name of the Service of an EndpointSlice."""
    return slice.namespace, str(slice.labels.get("kubernetes.io/service-name", ""))
