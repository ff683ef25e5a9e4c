"""Envoys in containers that share one network of their own, to which the host sends whole prefixes.

One container has the network: it does nothing, and stays while Envoys come and go. So two Envoys can serve
the same addresses, one making way for the other, and a crash of Envoy loses neither address nor route. The
Envoys share its processes' namespace, too: whoever removes that container ends them, and leaves nothing
behind that runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

from windowbox.clients.docker import Container, Engine
from windowbox.errors import Conflict, Missing
from windowbox.settings.lbsettings import Network
from workers.loadbalancer.envoy import hostnetwork
from workers.loadbalancer.envoy.attachments import Order
from workers.loadbalancer.envoy.docker import boxes, routes
from workers.loadbalancer.envoy.docker.boxes import FOLDER, Household
from workers.loadbalancer.envoy.docker.envoys import DockerEnvoy, DockerEnvoys
from workers.loadbalancer.envoy.docker.host import same_host
from workers.loadbalancer.envoy.docker.routes import SCRIPT, Inside

_FOR_EVER = ("sh", "-c", f"sh /{SCRIPT}; exec sleep infinity")


class DockerRouted:
    """The image needs `sh`, `sleep` and `ip`."""

    def __init__(
        self,
        engine: Engine,
        household: Household,
        network: str,
        prefixes: Sequence[Network],
        folder: Path | None = None,
    ) -> None:
        self._engine = engine
        self._household = household
        self._network = network
        self._prefixes = prefixes
        self._envoys = DockerEnvoys(engine, household, folder, self)
        self._one_at_a_time = asyncio.Lock()

    @property
    def folder(self) -> str:
        return FOLDER

    @property
    def fixed_ports(self) -> bool:
        return False

    async def beside_us(self) -> bool:
        return False

    async def names(self) -> Sequence[str]:
        return await self._envoys.names()

    async def found(self, name: str) -> Sequence[DockerEnvoy]:
        found = await self._envoys.found(name)
        if found:
            # Its address may be another one since it was started last.
            async with self._one_at_a_time:
                await self._have_host_routes(await self._networked())
        return found

    async def kept(self, name: str) -> Mapping[str, bytes]:
        return await self._envoys.kept(name)

    async def start(self, order: Order) -> DockerEnvoy:
        body = boxes.envoy(self._household, order)
        box = boxes.shared_box(self._household, order.name, order.generation)
        async with self._one_at_a_time:
            network = await self._networked()
            await self._have_host_routes(network)
            place = f"container:{network.id}"
            body["HostConfig"] |= {"NetworkMode": place, "PidMode": place}
            return await self._envoys.start(order, box, body)

    async def prepare(self, addresses: Sequence[str]) -> Mapping[str, str]:
        async with self._one_at_a_time:
            host_routes = await self._have_host_routes(await self._networked())
        return {
            address: problem
            for address in addresses
            if (problem := self._problem(ip_address(address), host_routes)) is not None
        } | await self._own(addresses)

    async def added(self) -> Collection[str]:
        return ()  # routes lead to its addresses, which are in the container

    async def remove(self, addresses: Collection[str]) -> None:
        """Nothing was added."""

    async def route(self, container: Container, routes: Mapping[str, str]) -> None:
        edge = boxes.edge_of(container) or ""
        async with self._one_at_a_time:
            network = await self._networked()
            await Inside(self._engine, network.id, self._prefixes).set(edge, routes)

    async def left(self, container: Container) -> None:
        async with self._one_at_a_time:
            if not await self._envoys.names():
                await self._engine.remove(boxes.network_box(self._household))
                if await same_host(self._engine):
                    for prefix in self._prefixes:
                        await routes.drop_route(prefix)

    def _problem(self, address: IPv4Address | IPv6Address, host_routes: Mapping[Network, str]) -> str | None:
        for prefix in self._prefixes:
            if address in prefix:
                return host_routes.get(prefix)
        return f"{address} is in none of the ranges: add its prefix to loadbalancer.ranges"

    async def _own(self, addresses: Sequence[str]) -> dict[str, str]:
        """Addresses that this host has itself, left by another attachment: it keeps their traffic."""
        if not await same_host(self._engine):
            return {}
        return {
            address: f"this host has {address} itself: as root: ip address del {address} dev lo"
            for address in addresses
            if hostnetwork.arrives(address)
        }

    async def _have_host_routes(self, network: Container) -> dict[Network, str]:
        """Have the host send the prefixes to the container. Returns what a person has to do."""
        if not await same_host(self._engine):
            return {}
        found = {}
        for prefix in self._prefixes:
            hop = _hop(network.addresses.get(self._network, ()), prefix.version)
            if hop is None:
                found[prefix] = f"Docker network {self._network} has no IPv{prefix.version}: make it again"
            elif command := await routes.have_route(prefix, hop):
                found[prefix] = command
        return found

    async def _networked(self) -> Container:
        """The container that has the network, running. One at a time."""
        box = boxes.network_box(self._household)
        try:
            found = await self._engine.look(box)
            if found.state == "restarting":
                found = await self._engine.back(found.id)
            if found.running:
                return found
        except Missing:
            pass
        return await self._make_network(box)

    async def _make_network(self, box: str) -> Container:
        await self._engine.ensure_image(self._household.image)
        await self._engine.remove(box)
        body = boxes.network(self._household, self._network, _FOR_EVER)
        if await same_host(self._engine) and hostnetwork.setting_of(hostnetwork.MIGRATE).exists():
            body["HostConfig"]["Sysctls"] = {hostnetwork.MIGRATE: "1"}
        try:
            made = await self._engine.create(box, body)
        except Conflict:
            # Another process of ours was faster.
            return await self._engine.look(box)
        inside = Inside(self._engine, made, self._prefixes)
        await inside.prepare()
        await self._engine.start(made)
        # Had the image no `ip`, the script at the start would have failed unseen.
        await inside.repeat()
        return await self._engine.look(made)


def _hop(addresses: Sequence[IPv4Address | IPv6Address], version: int) -> IPv4Address | IPv6Address | None:
    return next((address for address in addresses if address.version == version), None)
