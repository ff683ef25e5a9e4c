"""An edge, with what is served by it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.servers.envoy.nodes import Node
from windowbox.models.loadbalancers import Listener, LoadBalancer
from windowbox.models.refs import RUNTIME, ObjectRef
from workers.loadbalancer.envoy.edge import Edge


@dataclass
class World:
    edge: Edge
    address: Callable[[], str]
    _start: Callable[[str, str], Awaitable[Node]]

    async def nodes(self, count: int) -> list[Node]:
        """As many nodes as asked for: n1, n2, …"""
        return [await self._start(f"n{i + 1}", self.address()) for i in range(count)]

    async def serve(self, *listeners: Listener, patience: float = 10) -> dict[str, str]:
        """Have exactly these served, as one load balancer, and wait for it. Returns its problems."""
        one = balancer(*listeners)
        await self.edge.write([one])
        settled = [settled async for settled in self.edge.wait_applied([one], patience)]
        assert [s.load_balancer for s in settled] == [one]
        return dict(settled[0].problems)


def balancer(*listeners: Listener, name: str = "web") -> LoadBalancer:
    return LoadBalancer(ObjectRef(RUNTIME, "services", "garden", name), f"uid-of-{name}", listeners)
