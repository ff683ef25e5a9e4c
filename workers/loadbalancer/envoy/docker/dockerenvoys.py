"""Envoys in containers: how they are started, found, and reached, whatever their network is."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bus.leases import leases
from windowbox.clients.docker import Container, Engine
from windowbox.errors import Missing, Refused, WindowboxError
from workers.loadbalancer.envoy import hostfolders
from workers.loadbalancer.envoy.attachments import Order
from workers.loadbalancer.envoy.docker import boxes
from workers.loadbalancer.envoy.docker.boxes import FOLDER, Household
from workers.loadbalancer.envoy.hostfolders import EnvoyFolder
from workers.loadbalancer.launcher import programs
from workers.loadbalancer.links import hostnetwork


class Shared(EnvoyFolder):
    """A folder of this host that is mounted into the container.

    Envoy creates its socket there as root, so windowbox has to be root as well.
    """

    def prepare(self, files: Mapping[str, bytes]) -> None:
        """Replace the folder by one with these files, before the container exists."""
        with programs.writing(self._place):
            shutil.rmtree(self._place, ignore_errors=True)
            self._place.mkdir(mode=0o700, parents=True)
            for name, content in files.items():
                new = self._place / f".new-{name}"
                with new.open("wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())  # a crash of the host leaves the whole file, or none
                os.replace(new, self._place / name)

    def remove(self) -> None:
        shutil.rmtree(self._place, ignore_errors=True)
        with contextlib.suppress(OSError):  # it holds other generations
            self._place.parent.rmdir()


@dataclass
class DockerEnvoy:
    """One life of a container with an Envoy."""

    name: str
    generation: int
    container: Container
    files: Shared
    attachment: DockerEnvoys

    async def write(self, files: Mapping[str, bytes]) -> None:
        leases.check()  # files that a successor wrote are newer
        await self.files.write(files)

    async def read(self, file: str) -> bytes | None:
        return await self.files.read(file)

    async def ask(self, path: str, *, post: bool = False) -> bytes:
        return await self.files.ask(path, post=post)

    async def outdated(self) -> bool:
        with contextlib.suppress(Missing):
            image = await self.attachment.engine.image(self.attachment.household.image)
            return image != self.container.image
        return True  # the image has to be pulled first

    async def ended(self) -> None:
        await self.attachment.engine.ended(self.container)

    async def end(self) -> None:
        await self.attachment.engine.remove(self.container.id)
        self.files.remove()
        await self.attachment.left()

    async def route(self, routes: Mapping[str, str]) -> None:
        await self.attachment.route(self.container, routes)


class DockerEnvoys(ABC):
    """The Envoys of one windowbox on one engine. Addresses are aliases on the host's loopback."""

    folder = FOLDER
    discovery = f"{boxes.DISCOVERY}/{hostfolders.SOCKET}"
    fixed_ports = False

    def __init__(self, engine: Engine, household: Household, network: str, folder: Path) -> None:
        self.engine = engine
        self.household = household
        self._network = network
        self._folder = folder
        self._record = folder / hostnetwork.ADDED

    @property
    def discovery_folder(self) -> Path:
        return self._folder / hostfolders.DISCOVERY

    @abstractmethod
    async def route(self, container: Container, routes: Mapping[str, str]) -> None:
        """Have exactly these routes for this Envoy."""

    async def left(self) -> None:  # noqa: B027 (most attachments have nothing to clean up)
        """Clean up after an Envoy was removed. Aliases stay until `remove`: others may serve them by now."""

    async def beside_us(self) -> bool:
        return False

    async def names(self) -> Sequence[str]:
        containers = await self.engine.labelled(self.household.labels)
        return sorted({edge for c in containers if c.running and (edge := boxes.edge_of(c))})

    async def found(self, name: str) -> list[DockerEnvoy]:
        """Those that run, oldest generation first; also those that the engine is about to restart."""
        found = []
        for container in await self._containers(name):
            if container.state == "restarting":
                with contextlib.suppress(Missing):
                    container = await self.engine.back(container.id)
            if container.running:
                found.append(self._envoy(container))
        return found

    async def owners(self, name: str) -> bytes | None:
        places = (self._folder / name).glob("[0-9]*")
        return hostfolders.newest_owners(sorted(places, key=lambda place: int(place.name), reverse=True))

    async def prepare(self, addresses: Sequence[str]) -> Mapping[str, str]:
        if not await self.on_this_host():
            # Addresses of another host cannot be seen from here; failing connections show missing ones.
            return {}
        return await hostnetwork.prepare(addresses, self._record)

    async def added(self) -> Collection[str]:
        return hostnetwork.added(self._record)

    async def remove(self, addresses: Collection[str]) -> None:
        leases.check()
        await hostnetwork.remove(addresses, self._record)

    async def on_this_host(self) -> bool:
        """Whether the engine runs on this very host: not in a virtual machine, and we not in a container."""
        return await self.engine.host() == socket.gethostname()

    async def _launch(self, order: Order, box: str, body: dict[str, Any]) -> DockerEnvoy:
        """Start an Envoy in a container of this name and body. A container with this name is removed."""
        await self.engine.ensure_image(self.household.image)
        await self.engine.remove(box)
        folder = self._place(order.name, order.generation)
        Shared(folder).prepare(order.files)
        # The engine refuses a bind mount if the folder does not exist.
        with programs.writing(self.discovery_folder):
            self.discovery_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        mounts = {FOLDER: folder, boxes.DISCOVERY: self.discovery_folder}
        body["HostConfig"]["Mounts"] = [
            {"Type": "bind", "Source": str(source), "Target": target} for target, source in mounts.items()
        ]
        container = await self.engine.create(box, body)
        try:
            await self.engine.start(container)
            return self._envoy(await self.engine.look(container))
        except WindowboxError:
            # The engine keeps a container that it could not start, and with it the ports it was promised.
            with contextlib.suppress(WindowboxError):
                await self.engine.remove(container)
            raise

    async def _containers(self, name: str) -> list[Container]:
        """Those of one edge, running or not, oldest generation first."""
        found = await self.engine.labelled(boxes.edge_labels(self.household, name))
        return sorted(found, key=boxes.generation_of)

    def _envoy(self, container: Container) -> DockerEnvoy:
        name, generation = boxes.edge_of(container) or "", boxes.generation_of(container)
        return DockerEnvoy(name, generation, container, Shared(self._place(name, generation)), self)

    def _place(self, name: str, generation: int) -> Path:
        return self._folder / name / str(generation)


class DockerHost(DockerEnvoys):
    """Envoy sees the client's own address, and its ports can change while it runs."""

    async def beside_us(self) -> bool:
        return await self.on_this_host()

    async def start(self, order: Order) -> DockerEnvoy:
        body = boxes.envoy(self.household, order)
        body["HostConfig"]["NetworkMode"] = "host"
        if await self.on_this_host():
            hostnetwork.keep_waiting_connections()
        return await self._launch(order, boxes.shared_box(self.household, order.name, order.generation), body)

    async def route(self, container: Container, routes: Mapping[str, str]) -> None:
        if await self.on_this_host():
            name = boxes.edge_of(container) or ""
            await hostnetwork.route(self._folder / name / "routes.json", routes)
        elif routes:
            raise Refused(
                f"routes to {', '.join(routes)}: the table of Docker's host is out of reach; "
                "set loadbalancer.attachment to docker-routed"
            )
