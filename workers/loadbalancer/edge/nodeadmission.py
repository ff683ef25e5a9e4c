"""Admission of node addresses: a cluster may write any address into the status of its nodes."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from ipaddress import ip_address
from typing import NamedTuple

from windowbox.models.refs import RUNTIME
from windowbox.settings.lbsettings import LoadBalancerSettings, Network, matches
from workers.loadbalancer.edge.machineroutes import Machines, Node
from workers.loadbalancer.edge.trafficnodes import Backend
from workers.loadbalancer.spec import fields

logger = logging.getLogger(__name__)

_SETTLING = 5.0
"""Seconds until a refusal is reported, if it lasts: a node may be seen before its machine Pod."""


class Claimant(NamedTuple):
    """A node that claims an address."""

    node: Node
    uid: str
    created: str


class Admission:
    """Admits the addresses of nodes for traffic. Remembers which node had each first."""

    def __init__(
        self, settings: LoadBalancerSettings, machines: Machines, changed: Callable[[], None]
    ) -> None:
        self._settings = settings
        self._machines = machines
        self._changed = changed
        self._holders: dict[str, Claimant] = {}
        self._refused: dict[Node, str] = {}
        self._reported: dict[Node, str] = {}

    def admitted(self, nodes: Mapping[str, Iterable[Backend]]) -> dict[str, list[Backend]]:
        """The nodes with an admitted address, by cluster, each with its admitted addresses."""
        claims: dict[str, list[Claimant]] = defaultdict(list)
        refused: dict[Node, str] = {}
        for cluster, backends in nodes.items():
            for backend in backends:
                node = Node(cluster, backend.name)
                for address in backend.addresses.values():
                    if why := self._unverified(node, address):
                        refused[node] = why
                    else:
                        claims[address].append(Claimant(node, backend.uid, backend.created))
        self._holders = {
            address: _first(found, self._holders.get(address)) for address, found in claims.items()
        }
        good: set[tuple[Node, str]] = set()
        for address, found in claims.items():
            for claimant in found:
                if _together(claimant, self._holders[address]):
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

    def refused(self, cluster: str) -> tuple[str, ...]:
        """Reported refusals of the cluster's nodes, for people: `node m1: …`."""
        conflicts = sorted(
            (node.name, why) for node, why in self._reported.items() if node.cluster == cluster
        )
        return tuple(f"node {name}: {why}" for name, why in conflicts)

    def _unverified(self, node: Node, address: str) -> str:
        """Why the address is not proven to be the node's own; empty if it is."""
        if self._within(node.cluster, address):
            return ""
        if self._machines.place(node.cluster):
            return self._machines.disowned(node, address)
        if node.cluster == RUNTIME:
            return ""  # its writers own this host
        parsed = ip_address(address)
        if self._networks(node.cluster) or parsed.is_loopback or parsed.is_link_local:
            return f"{address} is in no network of its cluster's nodes (loadbalancer.node_networks)"
        return ""

    def _within(self, cluster: str, address: str) -> bool:
        parsed = ip_address(address)
        return any(parsed in prefix for prefix in self._networks(cluster))

    def _networks(self, cluster: str) -> list[Network]:
        settings = self._settings.node_networks
        return [prefix for one in settings if matches(cluster, one.clusters) for prefix in one.prefixes]

    def _report_lasting(self, new: Mapping[Node, str]) -> None:
        lasting = {node: why for node, why in new.items() if self._refused.get(node) == why}
        if lasting:
            listed = fields.listed(f"{node}: {why}" for node, why in lasting.items())
            logger.warning("addresses of nodes are refused: %s", listed)
            self._reported |= lasting
            self._changed()


def _first(found: Iterable[Claimant], before: Claimant | None) -> Claimant:
    """The owner of an address: its former owner, else a node of the runtime cluster, else the oldest node."""
    return min(
        found,
        key=lambda one: (
            before is None or not _together(one, before),
            one.node.cluster != RUNTIME,
            one.created,
            one.node,
        ),
    )


def _together(one: Claimant, other: Claimant) -> bool:
    """Whether both may have the address: nodes of one tenant, or one node of a cluster with two names."""
    return one.node.cluster == other.node.cluster or bool(one.uid and one.uid == other.uid)
