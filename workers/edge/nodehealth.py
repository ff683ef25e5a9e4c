"""Health checks of nodes: their kube-proxies are asked here, once for each node.

Envoy would check each port of each Service by itself: docs/decisions/0018-node-health-is-checked-once.md.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from windowbox.clients import kubeproxy

_INTERVAL = 3.0
_SOON = 0.5
"""Seconds until the next health check of a node that failed the last."""
_MOST_PER_SECOND = 1700
"""Health checks of healthy nodes: up to 5,100 nodes are asked every three seconds, more of them less often. A
check costs 0.07 ms of CPU: 1,700 a second are an eighth of a core."""
_MOST_SUSPECTS_PER_SECOND = 100
"""So many suspects of each cluster as well: up to 50 are asked twice a second."""
_AT_ONCE, _AT_ONCE_OF_CLUSTER = 512, 128
"""Health checks that are under way. Each takes a descriptor, for up to a second where nobody answers. No
cluster takes the places of others."""
_FAILURES = 2
"""So often in a row a node has to fail that was well."""


class Health(NamedTuple):
    """The health of a node."""

    healthy: bool
    failures: int = 0
    """Failed health checks in a row."""


HEALTHY = Health(healthy=True)


def initial(*, only_new: bool) -> Health:
    """What to think of a node that was never asked.

    Where others are known to serve, it has to answer before it gets traffic. Where all are new, it may be
    that only we are, and they have served all the time.
    """
    return HEALTHY if only_new else Health(healthy=False)


def next_state(before: Health, *, answered: bool) -> Health:
    """The health after one more check."""
    if answered:
        return HEALTHY
    failures = before.failures + 1
    return Health(before.healthy and failures < _FAILURES, failures)


class Cluster:
    """What the nodes of one cluster share."""

    def __init__(self) -> None:
        self.room = asyncio.Semaphore(_AT_ONCE_OF_CLUSTER)
        self.suspects: set[str] = set()
        """Those that failed the last time, or have not answered yet."""


def pause(nodes: int, suspects: int, *, suspect: bool) -> float:
    """Seconds until the next check of a node. A suspect does not wait for the many that are healthy."""
    if suspect:
        return max(_SOON, suspects / _MOST_SUSPECTS_PER_SECOND)
    return max(_INTERVAL, nodes / _MOST_PER_SECOND)


class NodeHealth:
    """Keeps asking the nodes that it is told to follow."""

    def __init__(self, group: asyncio.TaskGroup, changed: Callable[[], None]) -> None:
        self._group = group
        self._changed = changed
        self._probing: dict[str, asyncio.Task[None]] = {}
        self._health: dict[str, Health] = {}
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._clusters: dict[str, Cluster] = {}
        self._cluster_of: dict[str, Cluster] = {}
        """By address; the first, should several have it."""

    def follow(self, clusters: Mapping[str, Collection[str]]) -> None:
        """Ask the nodes at these addresses, by cluster, from now on, and no others."""
        wanted = {address for addresses in clusters.values() for address in addresses}
        for address in self._probing.keys() - wanted:
            self._probing.pop(address).cancel()
            del self._health[address]
            self._cluster_of.pop(address).suspects.discard(address)
        self._clusters = {name: self._clusters.get(name) or Cluster() for name in clusters}
        for name, addresses in clusters.items():
            new = set(addresses) - self._health.keys()
            health = initial(only_new=len(new) == len(addresses))
            for address in sorted(new):
                self._health[address] = health
                self._cluster_of[address] = self._clusters[name]
                self._note(address)
                probing = self._group.create_task(self._probe(address), name=f"edge: health of {address}")
                self._probing[address] = probing

    def unhealthy(self, address: str) -> bool:
        """Whether the node gets no traffic."""
        return not self._health.get(address, HEALTHY).healthy

    async def _probe(self, address: str) -> None:
        cluster = self._cluster_of[address]
        if address not in cluster.suspects:  # thousands that are new are not asked all at once
            await asyncio.sleep(random.uniform(0, len(self._probing) / _MOST_PER_SECOND))
        while True:
            async with cluster.room, self._room:
                answered = await kubeproxy.is_healthy(address)
            if answered is not None:
                self._record(address, answered=answered)
            await asyncio.sleep(self._pause(address))

    def _record(self, address: str, *, answered: bool) -> None:
        before = self._health[address]
        now = self._health[address] = next_state(before, answered=answered)
        self._note(address)
        if now.healthy != before.healthy:
            self._changed()

    def _note(self, address: str) -> None:
        suspects = self._cluster_of[address].suspects
        (suspects.discard if self._health[address] == HEALTHY else suspects.add)(address)

    def _pause(self, address: str) -> float:
        suspects = self._cluster_of[address].suspects
        suspect = address in suspects
        # The next answer decides whether one that is still healthy keeps its traffic.
        counted = 0 if self._health[address].healthy else len(suspects)
        return pause(len(self._probing), counted, suspect=suspect) * random.uniform(0.9, 1.1)
