"""Many shoots in a world of load balancers; their API servers and nodes are simulated."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import itertools
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bus import streams
from bus.clusters.registry import Registry
from bus.leases.leases import Leases
from bus.transport import consumers
from bus.transport.connection import Bus, connected
from tests.support import loopback
from tests.support.balancerworld import BalancerWorld, address, balancer_world, played_node
from tests.support.manyclusters import ManyClusters, many_clusters
from tests.support.natsserver import NatsServer
from tests.support.running import running
from tests.support.servers import ControlPlane
from windowbox.clients.kubernetes import kube
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Missing
from windowbox.models.clouds import CLOUD_TYPES
from windowbox.models.objects import Object
from windowbox.models.refs import NAMESPACES, NODES, SECRETS, SERVICES
from windowbox.rights import rbac
from windowbox.settings.bussettings import Access
from windowbox.settings.clustersettings import JoinSettings
from workers.kinds.membership.clusterjoining import Joining

LONG = 600.0
"""Seconds to wait for what concerns all shoots at once, on a busy machine."""


_numbers = itertools.count(1)

Addresses = dict[tuple[str, str], str]
"""Of load balancers, by shoot and name."""


@dataclass(frozen=True)
class Shoot:
    """One of the shoots: a node, and some load balancers."""

    number: int
    size: int

    @property
    def name(self) -> str:
        return f"shoot-{self.number}"

    @property
    def node(self) -> str:
        return f"127.69.{self.number}.1"

    @property
    def services(self) -> dict[str, int]:
        """Names and node ports. On the one API server behind all shoots, no two can share a node port."""
        first = 30000 + self.number * 8
        return {f"web-{place}": first + place for place in range(self.size)}


@dataclass
class ManyShoots:
    """The world, with its shoots."""

    world: BalancerWorld
    simulator: ManyClusters
    bus: Bus
    shoots: Sequence[Shoot]

    async def create(self, shoot: Shoot) -> None:
        """Create the shoot, and the Namespace of its control plane."""
        await self.simulator.add(shoot.name)
        async with self.api(shoot) as api:
            await api.create(NODES, "", _named("Node", "machine-0"))
            status = {"addresses": [{"type": "InternalIP", "address": shoot.node}]}
            await api.merge(NODES, "", "machine-0", {"status": status}, part="status")
            for name, node_port in shoot.services.items():
                spec = {"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": node_port}]}
                await api.create(SERVICES, "default", {**_named("Service", name), "spec": spec})
        text = base64.b64encode(self.simulator.kubeconfig(shoot.name).encode()).decode()
        namespace = _named("Namespace", shoot.name)
        namespace["metadata"]["annotations"] = {"cluster.windowbox/kubeconfig": "admin/config"}
        await self.world.kube.create(NAMESPACES, "", namespace)
        secret = {**_named("Secret", "admin"), "data": {"config": text}}
        await self.world.kube.create(SECRETS, shoot.name, secret)

    @contextlib.asynccontextmanager
    async def api(self, shoot: Shoot) -> AsyncIterator[Kube]:
        kubeconfig = self.simulator.kubeconfig(shoot.name).encode()
        async with kube.from_text(kubeconfig, shoot.name, loopback.EGRESS) as opened:
            yield opened

    async def delete(self, shoot: Shoot) -> None:
        """Delete the shoot: its control plane goes first, so that nothing can remove finalizers."""
        self.simulator.cut(shoot.name)
        await self.world.kube.delete(NAMESPACES, "", shoot.name)

    async def all_served(self) -> Addresses:
        """The addresses of all load balancers, once every one has one; asked of the server behind them."""
        wanted = {(shoot.name, name) for shoot in self.shoots for name in shoot.services}
        async with asyncio.timeout(LONG), kube.from_file(self.simulator.plane.kubeconfig) as real:
            found: Addresses = {}
            while not found.keys() >= wanted:
                page = await real.page(SERVICES, limit=0)
                found = _addresses(page.items)
                async for events in real.watch(SERVICES, page.resource_version):
                    found |= _addresses([event.object for event in events if event.type != "BOOKMARK"])
                    if found.keys() >= wanted:
                        break
        return found

    async def addresses(self) -> Addresses:
        """The addresses of all load balancers that have one."""
        async with kube.from_file(self.simulator.plane.kubeconfig) as real:
            return _addresses((await real.page(SERVICES, limit=0)).items)

    async def said(self, shoot: Shoot) -> list[str]:
        """Subjects under which any stream holds something of the shoot, except what is kept to look back."""
        found = []
        for stream, subjects in _OF_CLUSTER.items():
            wanted = [subjects.format(cluster=shoot.name)]
            found += [stored.subject async for stored in consumers.snapshot(self.bus, stream, wanted)]
        return found


_OF_CLUSTER = {
    streams.OBJECTS: "object.{cluster}.>",
    streams.TRIGGERS: "trigger.*.{cluster}.>",
    streams.LATER: "later.*.{cluster}.>",
    streams.INTENTS: "intent.{cluster}.>",
}


def _addresses(services: Iterable[dict[str, Any]]) -> Addresses:
    found = map(Object, services)
    return {(s.namespace.removesuffix("-default"), s.name): address(s) for s in found if address(s)}


def _named(kind: str, name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}}


@contextlib.asynccontextmanager
async def many_shoots(
    plane: ControlPlane,
    nats: NatsServer,
    folder: Path,
    patch: pytest.MonkeyPatch,
    count: int,
    size: int,
    prefixes: Sequence[str],
    *others: dict[str, Any],
    numbers: Iterator[int] = _numbers,
) -> AsyncIterator[ManyShoots]:
    """A world in which clusters join by their Namespaces, and `count` new shoots with nodes that serve.

    Its ranges are that of these prefixes, and the others.

    `plane` must have no other Services of type LoadBalancer: they are removed at the end.
    """
    shoots = [Shoot(next(numbers), size) for _ in range(count)]
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(_remove_services, plane)
        # The simulator speaks plain HTTP. Where no authority is named, all those of the world are read,
        # which takes longer than all the rest of opening a cluster.
        patch.setenv("SSL_CERT_FILE", str(plane.api.ca.certificate))
        patch.setenv("SSL_CERT_DIR", str(folder / "none"))
        simulator = await stack.enter_async_context(many_clusters(plane))
        # The runtime cluster is simulated, too: the real server's Services are those of all others.
        runtime = f"runtime-{shoots[0].number}"
        await simulator.add(runtime)
        kubeconfig = simulator.write_kubeconfig(runtime, folder)
        kubeconfigs = dict.fromkeys(rbac.RULES, kubeconfig)
        shown = dataclasses.replace(plane, kubeconfig=kubeconfig, kubeconfigs=kubeconfigs)
        for shoot in shoots:
            greetings = {port: f"{shoot.name}/{name}" for name, port in shoot.services.items()}
            await stack.enter_async_context(played_node(shoot.node, greetings))
        networks = [{"prefixes": ["127.69.0.0/16"], "clusters": ["shoot-*"]}]
        settings: Any = {"node_networks": networks, "ranges": [{"prefixes": prefixes}, *others]}
        world = await stack.enter_async_context(balancer_world(shown, nats, folder, "default", **settings))
        bus = await stack.enter_async_context(connected(Access(nats.url, name="joining")))
        registry, leases = Registry(bus), Leases(bus, "joining", "work")
        joining = Joining(bus, registry, JoinSettings(), clouds=CLOUD_TYPES)
        work = (registry.run(), registry.keep(), leases.run(), leases.while_held("join", joining.run))
        async with running(*work):
            yield ManyShoots(world, simulator, bus, shoots)


async def _remove_services(plane: ControlPlane) -> None:
    async with kube.from_file(plane.kubeconfig) as real:
        for found in map(Object, (await real.page(SERVICES, limit=0)).items):
            if found.spec["type"] == "LoadBalancer":
                patch = {"metadata": {"finalizers": None}}
                with contextlib.suppress(Missing):  # it was being deleted
                    await real.merge(SERVICES, found.namespace, found.name, patch)
                    await real.delete(SERVICES, found.namespace, found.name)
