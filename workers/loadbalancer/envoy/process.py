"""Envoys that are processes of this host, and outlive the windowbox that started them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from workers.loadbalancer.envoy.attachments import Order
from workers.loadbalancer.envoy.hostfolders import HostFolders, InFolder
from workers.loadbalancer.launcher import programs
from workers.loadbalancer.launcher.programs import Program, Programs
from workers.loadbalancer.links import hostnetwork
from workers.loadbalancer.links.addresses import Links


class Processes(HostFolders):
    """Envoys that are processes of this host."""

    def __init__(self, folder: Path, *, program: Path | None = None, links: Links | None = None) -> None:
        super().__init__(folder, links=links)
        self._programs = Programs(folder, program)

    async def found(self, name: str) -> Sequence[Process]:
        return [Process(self._place(name, one.generation), one) for one in self._programs.found(name)]

    async def names(self) -> Sequence[str]:
        return self._programs.names()

    async def start(self, order: Order) -> Process:
        hostnetwork.keep_waiting_connections()
        if left := self._programs.running(order.name, order.generation):
            await left.end()
        self._fill(order, [one.generation for one in await self.found(order.name)])
        place = self._place(order.name, order.generation)
        with programs.writing(place):
            return Process(place, self._programs.launch(order.name, order.generation))


class Process(InFolder):
    """An Envoy that is a process of this host."""

    def __init__(self, place: Path, program: Program) -> None:
        super().__init__(place)
        self._program = program

    @property
    def pid(self) -> int:
        return self._program.pid

    async def outdated(self) -> bool:
        return self._program.outdated()

    async def ended(self) -> None:
        await self._program.ended()

    async def end(self) -> None:
        await self._program.end()
