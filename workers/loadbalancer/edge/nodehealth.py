"""Health checks of nodes: one for each node's kube-proxy. Envoy gets no endpoints of unhealthy nodes.

Envoy itself would check each port of each Service: docs/decisions/0018-node-health-is-checked-once.md.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import random
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from bus.leases import guard
from windowbox.models.loadbalancers import KUBE_PROXY_PORT

_REQUEST = b"GET /healthz HTTP/1.1\r\nHost: windowbox\r\nConnection: close\r\n\r\n"
_TIMEOUT = 1.0
_TOO_LATE = 0.25
"""Seconds by which a timeout may fire late; later than that, this process is too busy to judge a node."""
_OUR_OWN = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL}
"""Shortages of this host, not of the node."""

_INTERVAL = 3.0
_SOON = 0.5
"""Seconds until the next health check of a node after a failed one."""
_MOST_PER_SECOND = 1700
"""Health checks of healthy nodes: up to 5,100 nodes are checked every three seconds, more nodes less often.
A check costs 0.07 ms of CPU: 1,700 a second are an eighth of a core."""
_MOST_SUSPECTS_PER_SECOND = 100
"""Health checks of the suspects of one cluster: up to 50 are checked twice a second."""
_AT_ONCE, _AT_ONCE_OF_CLUSTER = 512, 128
"""Concurrent health checks, and those of one cluster, so that none takes all. Each takes a descriptor, for up
to a second if the node does not answer."""
_FAILURES = 2
"""A healthy node becomes unhealthy after so many failures in a row."""
_MOST_NEEDED = 64
"""The most successes in a row that a node needs to be healthy again: half a minute. Each change is a write to
Envoy, and a cluster decides how often its nodes fail."""
_CALM = 100
"""Successes in a row, some five minutes, after which a node needs one success again."""


async def is_healthy(address: str) -> bool | None:
    """Whether the node's kube-proxy answers 200. None if this process was too busy, or lacked resources."""
    loop = asyncio.get_running_loop()
    limit = loop.time() + _TIMEOUT
    try:
        async with asyncio.timeout_at(limit):
            reader, writer = await asyncio.open_connection(address, KUBE_PROXY_PORT)
            try:
                writer.write(_REQUEST)
                return (await reader.readuntil(b"\r\n")).split()[1] == b"200"
            finally:
                writer.close()
    except TimeoutError:
        # A process that was stopped or stalled has not waited long enough for the node.
        return False if loop.time() < limit + _TOO_LATE else None
    except OSError as error:
        return None if error.errno in _OUR_OWN else False
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, IndexError):
        return False


class Health(NamedTuple):
    """The health of a node."""

    healthy: bool
    failures: int = 0
    """Failed health checks in a row."""
    successes: int = 0
    """Successful ones in a row."""
    needed: int = 1
    """Successes in a row with which it becomes healthy again: twice as many after each time that it did."""


HEALTHY, NEW = Health(healthy=True), Health(healthy=False)


def initial(*, only_new: bool) -> Health:
    """The health of a node before its first check.

    A new node among known ones gets traffic after a successful check. If all nodes are new, this process may
    have just started, and they may serve: they count as healthy.
    """
    return HEALTHY if only_new else NEW


def next_state(before: Health, *, answered: bool) -> Health:
    """The health after a check."""
    needed = before.needed
    if answered:
        successes = before.successes + 1
        if before.healthy:
            return HEALTHY if successes >= _CALM else Health(True, 0, successes, needed)
        if successes < needed:
            return Health(False, 0, successes, needed)
        return Health(True, 0, 0, min(_MOST_NEEDED, 2 * needed))
    failures = before.failures + 1
    return Health(before.healthy and failures < _FAILURES, failures, 0, needed)


class Cluster:
    """State that the nodes of one cluster share."""

    def __init__(self) -> None:
        self.room = asyncio.Semaphore(_AT_ONCE_OF_CLUSTER)
        self.suspects: set[str] = set()
        """Nodes whose last check failed, or that were not checked yet."""


def pause(nodes: int, suspects: int, *, suspect: bool) -> float:
    """Seconds until the next check of a node; healthy nodes do not delay suspects."""
    if suspect:
        return max(_SOON, suspects / _MOST_SUSPECTS_PER_SECOND)
    return max(_INTERVAL, nodes / _MOST_PER_SECOND)


class NodeHealth:
    """Checks the followed nodes periodically."""

    def __init__(self, group: asyncio.TaskGroup, changed: Callable[[str], None]) -> None:
        """`changed` is called with the address of a node whose health has changed, or is known now."""
        self._group = group
        self._changed = changed
        self._probing: dict[str, asyncio.Task[None]] = {}
        self._health: dict[str, Health] = {}
        self.failing = frozenset[str]()
        """The addresses of unhealthy nodes: they get no traffic."""
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._clusters: dict[str, Cluster] = {}
        self._cluster_of: dict[str, Cluster] = {}
        """By address; the first cluster that has it."""

    def follow(self, clusters: Mapping[str, Collection[str]]) -> None:
        """Check the nodes at these addresses, by cluster, and no others."""
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
                self._update_suspects(address)
                probe = guard.kept("edge: health", functools.partial(self._probe, address))
                self._probing[address] = self._group.create_task(probe, name=f"edge: health of {address}")
        self._judge()

    def awaits_check(self, address: str) -> bool:
        """Whether this is a new node before its first check."""
        return self._health.get(address) == NEW

    def _judge(self) -> None:
        self.failing = frozenset(address for address, one in self._health.items() if not one.healthy)

    async def _probe(self, address: str) -> None:
        cluster = self._cluster_of[address]
        if address not in cluster.suspects:  # spread the first checks of many new nodes
            await asyncio.sleep(random.uniform(0, len(self._probing) / _MOST_PER_SECOND))
        while True:
            async with cluster.room, self._room:
                answered = await is_healthy(address)
            if answered is not None:
                before = self._health[address]
                now = self._health[address] = next_state(before, answered=answered)
                self._update_suspects(address)
                if now.healthy != before.healthy or before == NEW:
                    self._judge()
                    self._changed(address)
            # A suspect that is still healthy is checked soon: that check decides.
            suspects = 0 if self._health[address].healthy else len(cluster.suspects)
            seconds = pause(len(self._probing), suspects, suspect=address in cluster.suspects)
            await asyncio.sleep(seconds * random.uniform(0.9, 1.1))

    def _update_suspects(self, address: str) -> None:
        suspects, health = self._cluster_of[address].suspects, self._health[address]
        (suspects.discard if health.healthy and not health.failures else suspects.add)(address)
