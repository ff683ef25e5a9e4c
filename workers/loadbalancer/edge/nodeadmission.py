"""Admission of addresses: a cluster may write any into its nodes and EndpointSlices."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import replace
from ipaddress import ip_address
from typing import NamedTuple

from windowbox.clients.kubernetes.egress import Egress
from windowbox.errors import WindowboxError
from windowbox.models.objects import Object, mapping
from windowbox.models.refs import RUNTIME
from windowbox.settings.lbsettings import LoadBalancerSettings, matches
from workers.loadbalancer.edge.machineroutes import Machines, Node
from workers.loadbalancer.edge.trafficnodes import Backend
from workers.loadbalancer.edgestate import States
from workers.loadbalancer.spec import fields

logger = logging.getLogger(__name__)

_SETTLING = 5.0
"""Seconds until a refusal is reported, if it lasts: a node may be seen before its machine Pod."""
_PAUSE = 5.0
"""Seconds between two testimonies about nodes."""
_MOST_OF_CLUSTER, _MOST = 1_000, 10_000
"""Addresses in a testimony, which is one message."""
_POLICY = Egress()
"""Denies loopback, link-local and multicast addresses, and the metadata services of clouds."""


class Claimant(NamedTuple):
    """A node that claims an address."""

    node: Node
    trusted: bool
    """It is a node of the runtime cluster, or a Pod there has this address: no tenant writes those."""


class Admission:
    """Admits the addresses of nodes for traffic. Remembers which cluster had each first, also on the bus."""

    def __init__(
        self, settings: LoadBalancerSettings, machines: Machines, changed: Callable[[], None]
    ) -> None:
        self._settings = settings
        self._machines = machines
        self._changed = changed
        self._holders: dict[str, str] = {}
        """By address, the cluster that has it."""
        self._testimony: dict[str, tuple[str, ...]] = {}
        self._outdated = asyncio.Event()
        self._refused: dict[Node, str] = {}
        self._reported: dict[Node, str] = {}

    def restore(self, states: States) -> None:
        """Begin with the holders that the last edge has published."""
        self._testimony = states.nodes()
        self._holders = {address: c for c, addresses in self._testimony.items() for address in addresses}

    async def testify(self, states: States) -> None:
        """Publish the holders whenever they have changed, or the bus has lost them; never returns."""
        with contextlib.ExitStack() as stack:
            stack.callback(states.bucket.on_regress(self._outdated.set))
            while True:
                await self._outdated.wait()
                self._outdated.clear()
                try:
                    if states.has_testified():  # or the edge is about to declare that it has published all
                        await states.testify(self._testimony)
                    else:
                        self._outdated.set()
                except WindowboxError as error:
                    logger.info("edge: the holders of node addresses cannot be published: %s", error)
                    self._outdated.set()
                await asyncio.sleep(_PAUSE)

    def admitted(
        self, nodes: Mapping[str, Iterable[Backend]], unheard: Collection[str] = ()
    ) -> dict[str, list[Backend]]:
        """The nodes with an admitted address, by cluster, each with its admitted addresses.

        The nodes of `unheard` clusters are not known: these keep their addresses.
        """
        claims: dict[str, list[Claimant]] = defaultdict(list)
        refused: dict[Node, str] = {}
        for cluster, backends in nodes.items():
            for backend in backends:
                node = Node(cluster, backend.name)
                for address in backend.addresses.values():
                    if why := self._unverified(node, address):
                        refused[node] = why
                    else:
                        claims[address].append(Claimant(node, self._trusted(node, address)))
        self._decide(claims, unheard)
        good: set[tuple[Node, str]] = set()
        for address, found in claims.items():
            for claimant in found:
                if claimant.node.cluster == self._holders[address]:
                    good.add((claimant.node, address))
                else:
                    refused[claimant.node] = f"{address} is the address of another cluster's node already"
        self._reported = {node: why for node, why in self._reported.items() if refused.get(node) == why}
        new = {node: why for node, why in refused.items() if self._refused.get(node) != why}
        self._refused = refused
        if new:
            asyncio.get_running_loop().call_later(_SETTLING, self._report_lasting, new)

        def reduced(backend: Backend, node: Node) -> Backend:
            kept = {of: address for of, address in backend.addresses.items() if (node, address) in good}
            # Unchanged nodes stay the same objects: a thousand load balancers compare them.
            return backend if len(kept) == len(backend.addresses) else replace(backend, addresses=kept)

        found_nodes = {c: [reduced(b, Node(c, b.name)) for b in backends] for c, backends in nodes.items()}
        return {cluster: [b for b in backends if b.addresses] for cluster, backends in found_nodes.items()}

    def undecided(self, cluster: str, backends: Iterable[Backend]) -> bool:
        """Whether some of these nodes need a machine that the bus may not know yet, or has forgotten."""
        return self._machines.unlisted(cluster) and any(
            not self._within(cluster, address) and not self._machines.known(Node(cluster, backend.name))
            for backend in backends
            for address in backend.addresses.values()
        )

    def refused(self) -> dict[str, tuple[str, ...]]:
        """By cluster, the reported refusals of its nodes, for people: `node m1: …`."""
        found: dict[str, list[str]] = defaultdict(list)
        for node, why in sorted(self._reported.items()):
            found[node.cluster].append(f"node {node.name}: {why}")
        return {cluster: tuple(reasons) for cluster, reasons in found.items()}

    def _unverified(self, node: Node, address: str) -> str:
        """Why the address is not proven to be the node's own; empty if it is."""
        within = self._within(node.cluster, address)
        if self._machines.place(node.cluster) and (self._machines.known(node) or not within):
            return self._machines.disowned(node, address)  # where there is a machine Pod, it decides
        if node.cluster == RUNTIME:
            return ""  # its writers own this host
        if not within:
            return f"{address} is in no network of its cluster's nodes (loadbalancer.node_networks)"
        if _is_ours(address, self._settings):
            return f"{address} is an address of load balancers (loadbalancer.ranges)"
        return ""

    def _trusted(self, node: Node, address: str) -> bool:
        place = self._machines.place(node.cluster)
        return node.cluster == RUNTIME or bool(
            place and place.cluster == RUNTIME and not self._machines.disowned(node, address)
        )

    def _decide(self, claims: Mapping[str, Collection[Claimant]], unheard: Collection[str]) -> None:
        """Choose the cluster that gets each address."""
        before = self._holders
        self._holders = {address: cluster for address, cluster in before.items() if cluster in unheard}
        trusted = {address for address, found in claims.items() if any(one.trusted for one in found)}
        for address, found in claims.items():
            if address in trusted or address not in self._holders:
                self._holders[address] = _first(found, before.get(address))
        self._update_testimony(self._holders.keys() - trusted)

    def _update_testimony(self, contestable: Set[str]) -> None:
        published = {address for addresses in self._testimony.values() for address in addresses}
        found: dict[str, list[str]] = defaultdict(list)
        # Those that are published stay, also if there are too many.
        for address in [*sorted(contestable & published), *sorted(contestable - published)][:_MOST]:
            mine = found[self._holders[address]]
            if len(mine) < _MOST_OF_CLUSTER:
                mine.append(address)
        testimony = {cluster: tuple(sorted(addresses)) for cluster, addresses in found.items()}
        if testimony != self._testimony:
            self._testimony = testimony
            self._outdated.set()

    def _within(self, cluster: str, address: str) -> bool:
        return _in_networks(cluster, address, self._settings)

    def _report_lasting(self, new: Mapping[Node, str]) -> None:
        lasting = {node: why for node, why in new.items() if self._refused.get(node) == why}
        if lasting:
            listed = fields.listed(f"{node}: {why}" for node, why in lasting.items())
            logger.warning("addresses of nodes are refused: %s", listed)
            self._reported |= lasting
            self._changed()


def without_denied(cluster: str, found: Object, settings: LoadBalancerSettings) -> Object:
    """An EndpointSlice without the Pods at addresses that a cluster may not send traffic to."""
    if cluster == RUNTIME:
        return found

    def is_denied(entry: object) -> bool:
        # Only the first address of an endpoint gets traffic.
        address = fields.address(next(iter(fields.items(mapping(entry).get("addresses"))), None))
        if address is None or _in_networks(cluster, address, settings):
            return False
        return not _POLICY.permits(ip_address(address)) or _is_ours(address, settings)

    entries = fields.items(found.raw.get("endpoints"))
    kept = [entry for entry in entries if not is_denied(entry)]
    return found if len(kept) == len(entries) else Object({**found.raw, "endpoints": kept})


def _in_networks(cluster: str, address: str, settings: LoadBalancerSettings) -> bool:
    """Whether the settings name a network for nodes of this cluster that has the address."""
    parsed = ip_address(address)
    return any(
        parsed in prefix
        for one in settings.node_networks
        if matches(cluster, one.clusters)
        for prefix in one.prefixes
    )


def _is_ours(address: str, settings: LoadBalancerSettings) -> bool:
    """Whether it may be an address of a load balancer: Envoy would connect to itself, without end."""
    parsed = ip_address(address)
    return any(parsed in prefix for one in settings.ranges for prefix in one.prefixes)


def _first(found: Iterable[Claimant], before: str | None) -> str:
    """The cluster that gets an address: one that proves it, else the one that has it, else the first by name.

    Tenants may forge when their nodes were created, and their uids.
    """
    return min(found, key=lambda one: (not one.trusted, one.node.cluster != before, one.node)).node.cluster
