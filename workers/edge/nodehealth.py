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
"""Seconds until a node is asked again that did not answer."""
_MOST_PER_SECOND = 100
_FAILURES = 2
"""So often in a row a node has to fail that was well."""


class Verdict(NamedTuple):
    """What is thought of a node."""

    healthy: bool
    failures: int = 0
    """How often it has failed since it was well."""


WELL = Verdict(healthy=True)


def initial(*, only_new: bool) -> Verdict:
    """What to think of a node that was never asked.

    Where others are known to serve, it has to answer before it gets traffic. Where all are new, it may be
    that only we are, and they have served all the time.
    """
    return WELL if only_new else Verdict(healthy=False)


def next_state(before: Verdict, *, answered: bool) -> Verdict:
    """What to think now."""
    if answered:
        return WELL
    failures = before.failures + 1
    return Verdict(before.healthy and failures < _FAILURES, failures)


class NodeHealth:
    """Keeps asking the nodes that it is told to follow."""

    def __init__(self, group: asyncio.TaskGroup, changed: Callable[[], None]) -> None:
        self._group = group
        self._changed = changed
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._verdicts: dict[str, Verdict] = {}

    def follow(self, clusters: Mapping[str, Collection[str]]) -> None:
        """Ask the nodes at these addresses, by cluster, from now on, and no others."""
        wanted = {address for addresses in clusters.values() for address in addresses}
        for address in self._asking.keys() - wanted:
            self._asking.pop(address).cancel()
            del self._verdicts[address]
        for addresses in clusters.values():
            new = set(addresses) - self._verdicts.keys()
            verdict = initial(only_new=len(new) == len(addresses))
            for address in sorted(new):
                self._verdicts[address] = verdict
                asking = self._group.create_task(self._ask(address), name=f"edge: health of {address}")
                self._asking[address] = asking

    def unhealthy(self, address: str) -> bool:
        """Whether a node is to get no traffic."""
        return not self._verdicts.get(address, WELL).healthy

    async def _ask(self, address: str) -> None:
        while True:
            answered = await kubeproxy.is_healthy(address)
            if answered is not None:
                self._judge(address, answered=answered)
            await asyncio.sleep(self._pause(address))

    def _judge(self, address: str, *, answered: bool) -> None:
        before = self._verdicts[address]
        now = self._verdicts[address] = next_state(before, answered=answered)
        if now.healthy != before.healthy:
            self._changed()

    def _pause(self, address: str) -> float:
        usual = _INTERVAL if self._verdicts[address] == WELL else _SOON
        return max(usual, len(self._asking) / _MOST_PER_SECOND) * random.uniform(0.9, 1.1)
