"""Nodes that come, change, break and go. `simulated-1` never does, so that one node always serves."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from sandbox.simulated import nodes
from sandbox.simulated.objects import BEHAVIOUR
from tests.chaos.outages import Outages
from tests.chaos.services import insist
from windowbox.clients.kubernetes.kube import Kube
from windowbox.models.refs import NODES
from workers.loadbalancer.edge.trafficnodes import DRAINED, EXCLUDED

logger = logging.getLogger(__name__)

_NOTICE = 5.0
"""Seconds from the announcement that a node will go until it does: health checks alone take three."""


@dataclass
class Nodes:
    """An owner of simulated nodes."""

    kube: Kube
    network: str
    count: int
    chance: random.Random
    broken: Outages = field(default_factory=Outages)
    """When a node went without notice, and took along whom it had just let in."""

    @property
    def steady(self) -> str:
        """The address of the node that always serves."""
        return nodes.addresses(self.network, 1)[0]

    async def run(self, seconds: float) -> None:
        """Do this and that to one node after the other, for so long. In the end one takes no traffic."""
        deadline = asyncio.get_running_loop().time() + seconds
        what: list[Callable[[str], Awaitable[None]]] = [self._leave, self._exclude, self._break, self._join]
        while asyncio.get_running_loop().time() < deadline:
            self.chance.shuffle(what)
            for act in what:
                await act(f"simulated-{self.chance.randrange(2, self.count + 1)}")
                await asyncio.sleep(self.chance.random())  # the pace of the chaos, as below
        await self._label(f"simulated-{self.count}", "true")

    async def _leave(self, name: str) -> None:
        await self._go(name)
        await asyncio.sleep(1 + self.chance.random())  # so long it is away
        await self._register(self.count)

    async def _join(self, _: str) -> None:
        await self._register(self.count + 1)
        await asyncio.sleep(2)  # so long it takes part
        await self._go(f"simulated-{self.count + 1}")

    async def _exclude(self, name: str) -> None:
        await self._label(name, "true")
        await asyncio.sleep(1 + self.chance.random())  # so long it takes no traffic
        await self._label(name, None)

    async def _break(self, name: str) -> None:
        for how in (self.chance.choice(["refuse", "drop"]), None):
            self.broken.begin()
            await self._merge(name, {"metadata": {"annotations": {BEHAVIOUR: how}}})
            self.broken.end()
            await asyncio.sleep(2 + self.chance.random())  # so long it is broken, or whole

    async def _go(self, name: str) -> None:
        taint = {"key": DRAINED, "effect": "NoSchedule"}
        await self._merge(name, {"spec": {"taints": [taint]}})
        await asyncio.sleep(_NOTICE)  # who drains a node waits before it goes
        await insist(lambda: self.kube.delete(NODES, "", name))

    async def _register(self, count: int) -> None:
        await insist(lambda: nodes.register(self.kube, count, self.network))

    async def _label(self, name: str, value: str | None) -> None:
        await self._merge(name, {"metadata": {"labels": {EXCLUDED: value}}})

    async def _merge(self, name: str, patch: dict[str, Any]) -> None:
        logger.warning("%s: %s", name, patch)
        await insist(lambda: self.kube.merge(NODES, "", name, patch))
