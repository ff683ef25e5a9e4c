"""Envoys in containers that have the host's network: addresses are aliases on its loopback."""

from __future__ import annotations

import socket
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from bus.leases import leases
from windowbox.clients.docker import Container, Engine
from windowbox.errors import Refused
from workers.loadbalancer.envoy import hostnetwork
from workers.loadbalancer.envoy.attachments import Order
from workers.loadbalancer.envoy.docker import boxes
from workers.loadbalancer.envoy.docker.boxes import FOLDER, Household
from workers.loadbalancer.envoy.docker.envoys import DockerEnvoy, DockerEnvoys


class DockerHost:
    """Envoy sees the true address of each client, and no port has to be known before it starts."""

    def __init__(self, engine: Engine, household: Household, folder: Path | None = None) -> None:
        self._engine = engine
        self._household = household
        self._folder = folder
        self._aliases = Aliases(engine, folder)
        self._envoys = DockerEnvoys(engine, household, folder, self)

    @property
    def folder(self) -> str:
        return FOLDER

    @property
    def fixed_ports(self) -> bool:
        return False

    async def beside_us(self) -> bool:
        return await same_host(self._engine)

    async def names(self) -> Sequence[str]:
        return await self._envoys.names()

    async def found(self, name: str) -> Sequence[DockerEnvoy]:
        return await self._envoys.found(name)

    async def kept(self, name: str) -> Mapping[str, bytes]:
        return await self._envoys.kept(name)

    async def start(self, order: Order) -> DockerEnvoy:
        body = boxes.envoy(self._household, order)
        body["HostConfig"]["NetworkMode"] = "host"
        box = boxes.shared_box(self._household, order.name, order.generation)
        if await self.beside_us():
            hostnetwork.keep_waiting_connections()
        return await self._envoys.start(order, box, body)

    async def prepare(self, addresses: Sequence[str]) -> Mapping[str, str]:
        return await self._aliases.prepare(addresses)

    async def added(self) -> Collection[str]:
        return self._aliases.added()

    async def remove(self, addresses: Collection[str]) -> None:
        await self._aliases.remove(addresses)

    async def route(self, container: Container, routes: Mapping[str, str]) -> None:
        if self._folder and await same_host(self._engine):
            name = boxes.edge_of(container) or ""
            await hostnetwork.route(self._folder / name / "routes.json", routes)
        elif routes:
            raise Refused(
                f"routes to {', '.join(routes)}: the host's own table is out of reach "
                "without loadbalancer.folder; set it, or loadbalancer.attachment to docker-routed"
            )

    async def left(self, container: Container) -> None:
        """Aliases stay until `remove`: another Envoy may serve them by now."""


class Aliases:
    """Addresses on the loopback of Docker's host, if that is this host. Without a folder they stay there."""

    def __init__(self, engine: Engine, folder: Path | None) -> None:
        self._engine = engine
        self._record = folder / hostnetwork.ADDED if folder else None

    async def prepare(self, addresses: Sequence[str]) -> dict[str, str]:
        if not await same_host(self._engine):
            # Nobody can look from here. What is missing shows when a connection is tried.
            return {}
        return await hostnetwork.prepare(addresses, self._record)

    def added(self) -> list[str]:
        return hostnetwork.added(self._record) if self._record else []

    async def remove(self, addresses: Collection[str]) -> None:
        if self._record:
            leases.check()
            await hostnetwork.remove(addresses, self._record)


async def same_host(engine: Engine) -> bool:
    """Whether the engine runs on this very host: not in a machine of its own, and we not in a container."""
    return await engine.host() == socket.gethostname()
