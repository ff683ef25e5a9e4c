"""Envoys in containers: how they are started, found again and spoken to, whatever their network is."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bus.leases import leases
from windowbox.clients.docker import Container, Engine
from windowbox.errors import Missing, WindowboxError
from workers.loadbalancer.envoy import resources
from workers.loadbalancer.envoy.attachments import Order
from workers.loadbalancer.envoy.docker import boxes
from workers.loadbalancer.envoy.docker.boxes import Household
from workers.loadbalancer.envoy.docker.files import Enclosed, Files, Shared

logger = logging.getLogger(__name__)


class Routing(Protocol):
    """What a way of being attached does about an Envoy's surroundings."""

    async def route(self, container: Container, routes: Mapping[str, str]) -> None:
        """Have exactly these routes for this Envoy."""

    async def left(self, container: Container) -> None:
        """An Envoy has gone: what was there for it alone may go as well."""


@dataclass
class DockerEnvoy:
    """One life of a container with an Envoy."""

    name: str
    generation: int
    container: Container
    files: Files
    engine: Engine
    routing: Routing
    image: str

    async def write(self, files: Mapping[str, bytes]) -> None:
        leases.check()  # what a successor wrote is newer
        await self.files.write(files)

    async def read(self, file: str) -> bytes | None:
        return await self.files.read(file)

    async def ask(self, path: str, *, post: bool = False) -> bytes:
        return await self.files.ask(path, post=post)

    async def outdated(self) -> bool:
        with contextlib.suppress(Missing):
            return await self.engine.image(self.image) != self.container.image
        return True  # it has to be fetched first

    async def ended(self) -> None:
        await self.engine.ended(self.container)

    async def end(self) -> None:
        await self.engine.remove(self.container.id)
        self.files.remove()
        await self.routing.left(self.container)

    async def route(self, routes: Mapping[str, str]) -> None:
        await self.routing.route(self.container, routes)


class DockerEnvoys:
    """All containers with Envoys of one windowbox on one engine."""

    def __init__(self, engine: Engine, household: Household, folder: Path | None, routing: Routing) -> None:
        self._engine = engine
        self._household = household
        self._folder = folder
        self._routing = routing

    async def names(self) -> Sequence[str]:
        containers = await self._engine.labelled(self._household.labels)
        return sorted({edge for c in containers if c.running and (edge := boxes.edge_of(c))})

    async def found(self, name: str) -> list[DockerEnvoy]:
        """Those that run, oldest generation first; also those that the engine is about to start again."""
        found = []
        for container in await self.containers(name):
            if container.state == "restarting":
                with contextlib.suppress(Missing):
                    container = await self._engine.back(container.id)
            if container.running:
                found.append(self._envoy(container))
        return found

    async def kept(self, name: str) -> Mapping[str, bytes]:
        """The newest files that are whole: a host that fails may leave some that are not."""
        for container in reversed(await self.containers(name)):
            files = await self._files(container).all()
            if resources.are_usable(files):
                return files
        return await self._orphaned(name)

    async def _orphaned(self, name: str) -> Mapping[str, bytes]:
        """Files of the host's whose container somebody removed."""
        generations = (self._folder / name).glob("[0-9]*") if self._folder else ()
        for folder in sorted(generations, key=lambda path: int(path.name), reverse=True):
            files = await Shared(folder).all()
            if resources.are_usable(files):
                return files
        return {}

    async def containers(self, name: str) -> list[Container]:
        """Those of one edge, running or not, oldest generation first."""
        found = await self._engine.labelled(boxes.edge_labels(self._household, name))
        return sorted(found, key=boxes.generation_of)

    async def start(
        self,
        order: Order,
        box: str,
        body: dict[str, Any],
        prepare: Callable[[str], Awaitable[None]] | None = None,
    ) -> DockerEnvoy:
        """Start what is ordered in a container of this name and body, in the place of any that has the name.

        `prepare` is called with the container's id before it is started.
        """
        await self._engine.ensure_image(self._household.image)
        await self._engine.remove(box)
        if folder := self._place(order.name, order.generation):
            Shared(folder).prepare(order.files)
            body["HostConfig"]["Mounts"] = [boxes.mount(str(folder))]
        container = await self._engine.create(box, body)
        try:
            if not folder:
                await Enclosed(self._engine, container).prepare(order.files)
            if prepare:
                await prepare(container)
            await self._engine.start(container)
            return self._envoy(await self._engine.look(container))
        except WindowboxError:
            # A container that could not be started stays, and with it whatever it was promised.
            with contextlib.suppress(WindowboxError):
                await self._engine.remove(container)
            raise

    def _envoy(self, container: Container) -> DockerEnvoy:
        return DockerEnvoy(
            name=boxes.edge_of(container) or "",
            generation=boxes.generation_of(container),
            container=container,
            files=self._files(container),
            engine=self._engine,
            routing=self._routing,
            image=self._household.image,
        )

    def _files(self, container: Container) -> Shared | Enclosed:
        edge, generation = boxes.edge_of(container) or "", boxes.generation_of(container)
        folder = self._place(edge, generation)
        return Shared(folder) if folder else Enclosed(self._engine, container.id)

    def _place(self, name: str, generation: int) -> Path | None:
        return self._folder / name / str(generation) if self._folder else None
