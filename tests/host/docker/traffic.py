"""Envoys in containers, and the backends that their clients reach."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping

from sandbox import processes
from tests.servers.envoy.clients import greeting, named
from tests.servers.envoy.nodes import Node
from tests.servers.envoy.world import balancer, configured
from tests.support.running import eventually
from windowbox.errors import Refused, Unreachable
from windowbox.models.loadbalancers import Listener, Protocol
from workers.loadbalancer.envoy import bootstrap, discovery, edge, resources
from workers.loadbalancer.envoy.attachments import Attachment, Order, Running
from workers.loadbalancer.envoy.discovery import Discovery
from workers.loadbalancer.envoy.resources import Configuration

LABELS = {"gardener.cloud/service": "shop/web"}


@contextlib.asynccontextmanager
async def backend(name: str, address: str) -> AsyncIterator[Node]:
    node = await Node(name, address, processes.free_port(), processes.free_port()).start()
    try:
        yield node
    finally:
        await node.stop()


def listener(node: Node, address: str, port: int = 80, protocol: Protocol = "TCP") -> Listener:
    """A listener for clients of this node, without health checks."""
    return Listener(address, port, protocol, (node.endpoint,))


class Edge:
    """Gives Envoys their configuration, in the place of an edge."""

    discovery = Discovery()

    def order(
        self, attachment: Attachment, *listeners: Listener, name: str = "edge", generation: int = 1
    ) -> Order:
        """The order of an Envoy that gets these listeners once it runs."""
        self.discovery.forget(name, generation)
        made = self._want(attachment, name, generation, *listeners)
        node = discovery.node_id(name, generation)
        files = {
            bootstrap.BOOTSTRAP: bootstrap.bootstrap(node, attachment.folder, attachment.discovery),
            bootstrap.OWNERS: resources.owners_file(made.owners),
        }
        return Order(name, generation, files, made.published, LABELS)

    def _want(
        self, attachment: Attachment, name: str, generation: int, *listeners: Listener
    ) -> Configuration:
        made = configured([balancer(*listeners)], anywhere=attachment.fixed_ports)
        self.discovery.session(name, generation).want(made.resources())
        return made

    def update(self, attachment: Attachment, envoy: Running, *listeners: Listener) -> None:
        self._want(attachment, envoy.name, envoy.generation, *listeners)


_edge = Edge()
order = _edge.order


@contextlib.asynccontextmanager
async def discovering(attachment: Attachment) -> AsyncIterator[Discovery]:
    """Serves the configurations of `order` and `update`."""
    _edge.discovery = Discovery()
    async with _edge.discovery.serving(attachment.discovery_folder):
        await _edge.discovery.begin()
        yield _edge.discovery


async def update(attachment: Attachment, envoy: Running, *listeners: Listener) -> None:
    _edge.update(attachment, envoy, *listeners)


def kept_by(attachment: Attachment, labels: Mapping[str, str] | None = None) -> edge.Edge:
    """An edge before Envoys of this attachment."""
    return edge.Edge(attachment, _edge.discovery, labels=labels)


async def greeted(address: str, port: int, by: str) -> None:
    """Wait until connections to an address are greeted by this backend."""

    async def is_greeted() -> bool:
        with contextlib.suppress(OSError):
            return await greeting(address, port) == by
        return False

    await eventually(is_greeted)


async def answered(address: str, port: int) -> str:
    """The name of the backend that answers a datagram. Retries, because datagrams get lost."""
    return await eventually(lambda: named(address, port, patience=0.5))


async def serving(attachment: Attachment, node: Node, address: str, *, generation: int = 1) -> Running:
    """An Envoy that serves the backend at port 80 of the address."""
    await attachment.prepare([address])
    envoy = await attachment.start(order(attachment, listener(node, address), generation=generation))
    await greeted(address, 80, node.name)
    return envoy


async def live(envoy: Running) -> None:
    """Wait until Envoy reports that it serves."""

    async def is_live() -> bool:
        with contextlib.suppress(Unreachable, Refused):  # it does not listen yet, or initializes
            return (await envoy.ask("/ready")).strip() == b"LIVE"
        return False

    await eventually(is_live)
