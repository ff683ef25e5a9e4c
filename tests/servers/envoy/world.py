"""Envoys, edges and nodes of one test, on its own loopback addresses."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field

from tests.servers.envoy.clients import PORT
from tests.servers.envoy.nodes import Node
from tests.support.running import running, soon
from windowbox.models.loadbalancers import Listener, LoadBalancer, Protocol
from windowbox.models.refs import RUNTIME, ObjectRef
from workers.loadbalancer.envoy import resources
from workers.loadbalancer.envoy.attachments import Attachment
from workers.loadbalancer.envoy.discovery import Discovery
from workers.loadbalancer.envoy.edge import Edge
from workers.loadbalancer.envoy.process import Process, Processes
from workers.loadbalancer.envoy.resources import Configuration
from workers.loadbalancer.tracked import LoadBalancers, Tracked

_numbers = itertools.count(1)


def listener(address: str, nodes: Sequence[Node], protocol: Protocol = "TCP", port: int = PORT) -> Listener:
    return Listener(address, port, protocol, tuple(node.endpoint for node in nodes), check=10256)


def balancer(*listeners: Listener, name: str = "web") -> LoadBalancer:
    return LoadBalancer(ObjectRef(RUNTIME, "services", "garden", name), f"uid-of-{name}", listeners)


def tracked(balancers: Iterable[LoadBalancer]) -> LoadBalancers:
    return Tracked({one.ref: one for one in balancers})


def configured(
    balancers: Iterable[LoadBalancer], unhealthy: frozenset[str] = frozenset(), *, anywhere: bool = False
) -> Configuration:
    """The configuration of an Envoy that serves exactly these."""
    made = Configuration()
    made.take(resources.rendered(tracked(balancers), made, unhealthy, anywhere=anywhere))
    return made


async def problems(edge: Edge, one: LoadBalancer, patience: float = 10) -> dict[str, str]:
    """Why ports of the load balancer are not served, once that is known."""
    (settled,) = [settled async for settled in edge.wait_applied([one], patience)]
    assert settled.load_balancer == one
    return dict(settled.problems)


@dataclass
class World:
    """Envoys that outlive their edge, but not the test."""

    attachment: Processes
    closing: contextlib.AsyncExitStack
    edge: Edge = field(init=False)
    """The one that was kept last."""
    discovery: Discovery = field(init=False)

    def address(self) -> str:
        """A loopback address that no other test uses, nor another run of the tests."""
        number = next(_numbers)
        return f"127.{100 + os.getpid() % 100}.{number // 250}.{number % 250 + 1}"

    async def node(self, name: str = "n1", address: str = "", port: int = 30080, check: int = 10256) -> Node:
        one = Node(name, address or self.address(), port, check)
        self.closing.push_async_callback(one.stop)
        return await one.start()

    async def nodes(self, count: int) -> list[Node]:
        """Nodes n1, n2, …"""
        return [await self.node(f"n{i + 1}") for i in range(count)]

    @contextlib.asynccontextmanager
    async def keeping(self, attachment: Attachment | None = None) -> AsyncIterator[Edge]:
        """An edge that runs for as long as the body."""
        attachment = attachment or self.attachment
        self.discovery = Discovery()
        self.edge = Edge(attachment, self.discovery)
        async with self.discovery.serving(attachment.discovery_folder), running(self.edge.keep()):
            await soon(self.edge.running.wait())
            yield self.edge

    async def serve(self, *listeners: Listener, patience: float = 10) -> dict[str, str]:
        """Serve exactly these, as one load balancer, and return its problems once they are known."""
        one = balancer(*listeners)
        await self.edge.write(tracked([one]))
        return await problems(self.edge, one, patience)

    async def envoy(self) -> Process:
        """The only Envoy that runs."""
        (found,) = await self.attachment.found("edge")
        return found

    async def generations(self) -> list[int]:
        return [one.generation for one in await self.attachment.found("edge")]

    async def are(self, *generations: int) -> bool:
        """Whether exactly these generations of Envoys run."""
        return await self.generations() == list(generations)

    async def end_all(self) -> None:
        for name in await self.attachment.names():
            for envoy in await self.attachment.found(name):
                await envoy.end()
