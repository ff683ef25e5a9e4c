"""Envoys in containers that share one network of their own, to which the host routes whole prefixes.

One container owns the network: it only sleeps, and stays while Envoys come and go. So two Envoys can serve
the same addresses while one replaces the other, and a crash of Envoy loses neither address nor route. The
Envoys share its PID namespace, too, so that removing that container kills them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path

from windowbox.clients.docker import Container, Engine
from windowbox.errors import Conflict, Missing
from windowbox.settings.lbsettings import Network
from workers.loadbalancer.envoy.attachments import Order
from workers.loadbalancer.envoy.docker import boxes, containerroutes
from workers.loadbalancer.envoy.docker.boxes import Household
from workers.loadbalancer.envoy.docker.containerroutes import SCRIPT, ContainerRoutes
from workers.loadbalancer.envoy.docker.dockerenvoys import DockerEnvoy, DockerEnvoys
from workers.loadbalancer.links import hostnetwork

_SLEEP = ("sh", "-c", f"sh /{SCRIPT}; exec sleep infinity")


class DockerRouted(DockerEnvoys):
    """The image needs `sh`, `sleep` and `ip`."""

    def __init__(
        self,
        engine: Engine,
        household: Household,
        network: str,
        folder: Path,
        prefixes: Sequence[Network],
    ) -> None:
        super().__init__(engine, household, network, folder)
        self._prefixes = prefixes
        self._one_at_a_time = asyncio.Lock()

    async def found(self, name: str) -> list[DockerEnvoy]:
        found = await super().found(name)
        if found:
            # The network container may have got another address with its last start.
            async with self._one_at_a_time:
                await self._have_host_routes(await self._networked())
        return found

    async def start(self, order: Order) -> DockerEnvoy:
        body = boxes.envoy(self.household, order)
        box = boxes.shared_box(self.household, order.name, order.generation)
        async with self._one_at_a_time:
            network = await self._networked()
            await self._have_host_routes(network)
            place = f"container:{network.id}"
            body["HostConfig"] |= {"NetworkMode": place, "PidMode": place}
            return await self._launch(order, box, body)

    async def prepare(self, addresses: Sequence[str]) -> Mapping[str, str]:
        async with self._one_at_a_time:
            host_routes = await self._have_host_routes(await self._networked())
        problems = {}
        for address in addresses:
            prefix = next((prefix for prefix in self._prefixes if ip_address(address) in prefix), None)
            if prefix is None:
                problems[address] = (
                    f"{address} is in none of the ranges: add its prefix to loadbalancer.ranges"
                )
            elif prefix in host_routes:
                problems[address] = host_routes[prefix]
        if await self.on_this_host():
            for address in filter(hostnetwork.arrives, addresses):
                # Another attachment left it there: the host answers itself, and does not route the traffic.
                command = f"ip address del {address} dev lo"
                problems[address] = f"this host has {address} itself: as root: {command}"
        return problems

    async def added(self) -> Collection[str]:
        return ()  # the host has routes only; the addresses are in the container

    async def remove(self, addresses: Collection[str]) -> None:
        """Nothing was added."""

    async def route(self, container: Container, routes: Mapping[str, str]) -> None:
        edge = boxes.edge_of(container) or ""
        async with self._one_at_a_time:
            network = await self._networked()
            await ContainerRoutes(self.engine, network.id, self._prefixes).set(edge, routes)

    async def left(self) -> None:
        async with self._one_at_a_time:
            if not await self.names():
                await self.engine.remove(boxes.network_box(self.household))
                if await self.on_this_host():
                    for prefix in self._prefixes:
                        await containerroutes.drop_route(prefix)

    async def _have_host_routes(self, network: Container) -> dict[Network, str]:
        """Route the prefixes from the host to the container. For failed ones: what a person has to do."""
        if not await self.on_this_host():
            return {}
        found = {}
        for prefix in self._prefixes:
            hops = (h for h in network.addresses.get(self._network, ()) if h.version == prefix.version)
            if (hop := next(hops, None)) is None:
                found[prefix] = f"Docker network {self._network} has no IPv{prefix.version}: recreate it"
            elif command := await containerroutes.have_route(prefix, hop):
                found[prefix] = command
        return found

    async def _networked(self) -> Container:
        """The running container that has the network. To be called with the lock."""
        box = boxes.network_box(self.household)
        try:
            found = await self.engine.look(box)
            if found.state == "restarting":
                found = await self.engine.back(found.id)
            if found.running:
                return found
        except Missing:
            pass
        await self.engine.ensure_image(self.household.image)
        await self.engine.remove(box)
        body = boxes.network(self.household, self._network, _SLEEP)
        if await self.on_this_host() and hostnetwork.setting_of(hostnetwork.MIGRATE).exists():
            body["HostConfig"]["Sysctls"] = {hostnetwork.MIGRATE: "1"}
        try:
            made = await self.engine.create(box, body)
        except Conflict:
            # Another process of windowbox was faster.
            return await self.engine.look(box)
        inside = ContainerRoutes(self.engine, made, self._prefixes)
        await inside.prepare()
        await self.engine.start(made)
        # With an image without `ip`, the script fails unseen at the start; here it is Refused.
        await inside.repeat()
        return await self.engine.look(made)
