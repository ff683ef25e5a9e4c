"""Load balancers from the API to Envoy within this process: one watcher, one worker, one patcher."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from bus import intents, streams
from bus.clusters.clusters import clusters
from bus.clusters.providers import Providers
from bus.clusters.registry import Registry
from bus.leases.leases import Leases
from bus.permissions import Role
from bus.transport.connection import Bus, connected
from bus.workqueue.pool import Pool
from bus.workqueue.queue import Queue
from bus.workqueue.routing import run_due
from patchers.directwrites import DirectWrites
from patchers.statuspatcher import StatusPatcher
from tests.support import envoyprogram, loopback
from tests.support.healthserver import healthy
from tests.support.natsserver import NatsServer
from tests.support.roles import RoleServer
from tests.support.running import eventually, running
from tests.support.servers import ControlPlane
from watchers.watching import Watching
from windowbox.clients.kubernetes import kube
from windowbox.clients.kubernetes.kube import Kube
from windowbox.clients.nameserver import Nameserver
from windowbox.errors import Conflict
from windowbox.kinds import POOLS
from windowbox.models.objects import Object
from windowbox.models.refs import CLUSTERS, NAMESPACES, NODES, SERVICES, Resource
from windowbox.settings.bussettings import Access
from windowbox.settings.dnssettings import DnsSettings
from windowbox.settings.lbsettings import LoadBalancerSettings
from windowbox.settings.settings import WorkSettings
from workers.core.lifecycle.world import World
from workers.core.owned.targets import TargetClusters
from workers.core.serving import Common
from workers.loadbalancer import loadbalancerpool as loadbalancer
from workers.loadbalancer.edge.controller import EdgeParts, EdgeTerms
from workers.loadbalancer.envoy.attachments import Attachment
from workers.loadbalancer.envoy.process import Processes
from workers.loadbalancer.loadbalancerpool import BalancerParts

EVENTS = Resource("", "v1", "events", "Event")
KINDS = (NAMESPACES.id, SERVICES.id, NODES.id, CLUSTERS.id)


@dataclass
class BalancerWorld:
    """The servers, the API of the cluster, and what a test does to them."""

    plane: ControlPlane
    server: NatsServer | RoleServer
    folder: Path
    settings: LoadBalancerSettings
    kube: Kube
    namespace: str
    attachment: Attachment | None = None
    """Instead of processes of this host."""
    parts: list[BalancerParts] = field(default_factory=list)
    dns: DnsSettings = field(default_factory=lambda: DnsSettings(zones=[]))

    @property
    def nats(self) -> NatsServer:
        """The NATS server, if it has no users for roles."""
        assert isinstance(self.server, NatsServer)
        return self.server

    def access(self, role: Role) -> Access:
        """Access to the bus, with the rights of a role if the server has users for roles."""
        server = self.server
        return server.access(role) if isinstance(server, RoleServer) else Access(server.url, name=role)

    async def service(self, name: str, port: int = 80, node_port: int | None = None, **spec: Any) -> Object:
        """Create a Service of type LoadBalancer."""
        port_ = {"name": "main", "port": port} | ({"nodePort": node_port} if node_port else {})
        metadata = {"name": name, **spec.pop("metadata", {})}
        body = {"metadata": metadata, "spec": {"type": "LoadBalancer", "ports": [port_], **spec}}
        return await self.kube.create(
            SERVICES, self.namespace, {"apiVersion": "v1", "kind": "Service", **body}
        )

    async def serve(self, name: str, port: int = 80, node_port: int | None = None, **spec: Any) -> str:
        """Create a Service, and wait for its address."""
        await self.service(name, port, node_port, **spec)
        return await self.served(name)

    async def get(self, name: str) -> Object | None:
        return await self.kube.find(SERVICES, self.namespace, name)

    async def until(self, name: str, holds: Callable[[Object], bool]) -> Object:
        """The Service, once it meets this condition."""

        async def look() -> Object | None:
            found = await self.get(name)
            return found if found and holds(found) else None

        found = await eventually(look)
        assert found
        return found

    async def served(self, name: str) -> str:
        """The address of the Service, once its status shows one."""
        return address(await self.until(name, lambda found: bool(address(found))))

    async def gone(self, name: str) -> None:
        async def look() -> bool:
            return await self.get(name) is None

        await eventually(look)

    async def delete(self, name: str) -> None:
        await self.kube.delete(SERVICES, self.namespace, name)

    async def merge(self, name: str, patch: dict[str, Any], *, part: str = "") -> None:
        await self.kube.merge(SERVICES, self.namespace, name, patch, part=part)

    async def reasons(self, name: str) -> list[str]:
        """Reasons of the Service's Events, oldest first."""
        return [reason for reason, _ in await self.events(name)]

    async def events(self, name: str) -> list[tuple[str, str]]:
        """Reason and message of the Service's Events, oldest first."""
        found = (await self.kube.page(EVENTS, namespace=self.namespace)).items
        mine = [
            e
            for e in found
            if e["involvedObject"].get("name") == name
            # The API server reports Events of Services, too.
            and e.get("source", {}).get("component") == "service-controller"
        ]
        mine.sort(key=lambda e: int(e["metadata"]["resourceVersion"]))
        return [(e["reason"], e["message"]) for e in mine]

    async def reported(self, name: str, reason: str) -> str:
        """The message of the first Event for this reason."""

        async def look() -> str:
            return next((message for why, message in await self.events(name) if why == reason), "")

        return await eventually(look)

    async def complaint(self, name: str, words: str) -> str:
        """The message of a Warning of the Service that contains these words."""

        async def look() -> str:
            reported = (f"{reason} {message}" for reason, message in await self.events(name))
            return next((said for said in reported if words in said), "")

        return await eventually(look)

    async def node(self, name: str, addr: str) -> None:
        """Create a node."""
        with contextlib.suppress(Conflict):
            await self.kube.create(
                NODES, "", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
            )
        status = {"addresses": [{"type": "InternalIP", "address": addr}]}
        await self.kube.merge(NODES, "", name, {"status": status}, part="status")

    @contextlib.asynccontextmanager
    async def worker(self) -> AsyncIterator[BalancerParts]:
        """One more worker, with a connection of its own."""
        async with connected(self.access("worker")) as bus, contextlib.AsyncExitStack() as stack:
            parts, tasks = await self._worker(bus, stack)
            self.parts.append(parts)
            async with running(*(task() for task in tasks)):
                yield parts
            self.parts.remove(parts)

    async def _worker(
        self, bus: Bus, stack: contextlib.AsyncExitStack
    ) -> tuple[BalancerParts, list[Callable[[], Any]]]:
        runtime = await stack.enter_async_context(kube.from_file(self.plane.kubeconfigs["worker"]))
        registry, leases = Registry(bus), Leases(bus, f"worker {id(bus)}", "work")
        opened = await stack.enter_async_context(clusters(runtime, registry, loopback.SETTINGS))
        attachment = self.attachment or Processes(self.folder / "edge", program=self.settings.envoy)
        providers = Providers(opened, registry)
        stack.push_async_callback(providers.aclose)
        nameserver = Nameserver(self.dns)
        stack.push_async_callback(nameserver.aclose)
        common = Common(
            bus=bus,
            clusters=opened,
            registry=registry,
            world=World(bus, opened),
            targets=TargetClusters(opened, providers),
            nameserver=nameserver,
            closing=stack,
            work=WorkSettings(concurrency=16, ack_wait=4.0),
            loadbalancer=self.settings,
        )
        parts = await loadbalancer.assembled(common, POOLS["loadbalancer"])
        if self.settings.edge == "work":
            queue = Queue(bus, "loadbalancer")
            edge = EdgeTerms(
                EdgeParts(bus, registry, parts.store, parts.states, attachment, self.settings, queue)
            )
            parts = replace(parts, leased=parts.leased | {"edge": edge.run}, details={"edge": edge.describe})
        return parts, [
            *parts.tasks.values(),
            registry.run,
            leases.run,
            parts.pool.run,
            parts.router.run,
            *(partial(leases.while_held, lease, task) for lease, task in parts.leased.items()),
            lambda: leases.while_held("sweep.loadbalancer", lambda: parts.router.sweep(1.0)),
        ]

    @contextlib.asynccontextmanager
    async def watcher_and_patcher(self) -> AsyncIterator[None]:
        async with (
            connected(self.access("watcher")) as bus,
            connected(self.access("patcher")) as patching,
            contextlib.AsyncExitStack() as stack,
        ):
            await streams.ensure(bus)
            api = await stack.enter_async_context(kube.from_file(self.plane.kubeconfigs["watcher"]))
            seen, leases = Registry(bus), Leases(bus, f"watcher {id(bus)}", "watch")
            opened = await stack.enter_async_context(clusters(api, seen, loopback.SETTINGS))
            watching = Watching(bus, leases, opened, seen, KINDS)
            api = await stack.enter_async_context(kube.from_file(self.plane.kubeconfigs["patcher"]))
            registry = Registry(patching)
            written = await stack.enter_async_context(clusters(api, registry, loopback.SETTINGS))
            patcher = StatusPatcher(patching, written)
            patch = Pool(patching, intents.PATCH, patcher, ack_wait=4.0, sharing=lambda ref: ref.cluster)
            async with running(
                seen.run(),
                leases.run(),
                watching.run(),
                registry.run(),
                patch.run(),
                DirectWrites(patching, written).run(),
                run_due(patching, Queue(patching, intents.PATCH)),
                _streams(bus),
            ):
                yield


async def _streams(bus: Bus) -> None:
    """Create the streams after each reconnect, as `windowbox watch` does."""
    back = asyncio.Event()
    with bus.on_reconnect(back.set):
        while True:
            await back.wait()
            back.clear()
            await streams.ensure(bus)


def asking(**annotations: str) -> dict[str, Any]:
    """Metadata of a Service that asks for these options: `asking(share="word")`."""
    named = {f"loadbalancer.windowbox/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return {"annotations": named}


def condition(service: Object, kind: str) -> dict[str, Any]:
    """The condition of this type in its status; empty if there is none."""
    found = service.status.get("conditions") or []
    return next((one for one in found if one["type"] == kind), {})


async def complete(parts: BalancerParts) -> None:
    """Wait until a worker knows all allocations."""

    await eventually(parts.store.is_complete)


def address(service: Object) -> str:
    """The first address that its status shows."""
    ingress = service.status.get("loadBalancer", {}).get("ingress") or [{}]
    return str(ingress[0].get("ip", ""))


@contextlib.asynccontextmanager
async def played_node(addr: str, greetings: Mapping[int, str]) -> AsyncIterator[None]:
    """Simulates a node: kube-proxy's health check, and Pods that greet behind the node ports."""
    servers = [await asyncio.start_server(healthy, addr, 10256)]
    for node_port, text in greetings.items():
        servers.append(await asyncio.start_server(partial(_greet, text), addr, node_port))
    try:
        yield
    finally:
        for server in servers:
            server.close()


async def _greet(text: str, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(text.encode() + b"\n")
    with contextlib.suppress(OSError):
        await writer.drain()
    writer.close()


async def greeting(addr: str, port: int = 80) -> str:
    """The server's first bytes; empty if the connection fails."""
    try:
        async with asyncio.timeout(20):
            reader, writer = await asyncio.open_connection(addr, port)
            line = (await reader.readline()).decode().strip()
            writer.close()
            return line
    except OSError:
        return ""


def taken_port(addr: str, port: int) -> socket.socket:
    """Occupies the port, until the socket is closed."""
    return socket.create_server((addr, port), reuse_port=False)


@contextlib.asynccontextmanager
async def balancer_world(
    plane: ControlPlane, nats: NatsServer | RoleServer, folder: Path, namespace: str, **settings: Any
) -> AsyncIterator[BalancerWorld]:
    """A world without workers; objects in its namespace are deleted at the end."""
    made = LoadBalancerSettings(folder=folder / "edge", envoy=envoyprogram.envoy(folder), **settings)
    async with kube.from_file(plane.kubeconfig) as api:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        with contextlib.suppress(Conflict):
            await api.create(NAMESPACES, "", body)
        world = BalancerWorld(plane, nats, folder, made, api, namespace)
        try:
            async with world.watcher_and_patcher():
                yield world
        finally:
            await _tidy(world)


async def _tidy(world: BalancerWorld) -> None:
    for raw in (await world.kube.page(SERVICES, namespace=world.namespace)).items:
        found = Object(raw)
        await world.kube.merge(SERVICES, found.namespace, found.name, {"metadata": {"finalizers": None}})
        await world.kube.delete(SERVICES, found.namespace, found.name)
    for raw in (await world.kube.page(NODES)).items:
        await world.kube.delete(NODES, "", Object(raw).name)
    attachment = Processes(world.folder / "edge")
    for name in await attachment.names():
        for envoy in await attachment.found(name):
            await envoy.end()


async def always(holds: Callable[[], Awaitable[bool]], during: Awaitable[Any]) -> None:
    """Asserts a condition for as long as the block runs."""
    done = asyncio.ensure_future(during)
    while not done.done():
        assert await holds()
        await asyncio.sleep(0.02)  # sampling: an absence of changes sends no event
    await done
