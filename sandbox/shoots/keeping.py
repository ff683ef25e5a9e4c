"""Starts and stops control planes of Shoots, as the records of the sandbox say."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.children import Child
from sandbox.restarter import Restarter
from sandbox.shoots import records
from windowbox.errors import WindowboxError

logger = logging.getLogger(__name__)

SHARED = ""
"""In place of a name: it lives while there are Shoots."""


@dataclass
class Shoots:
    """Follows the records when told to look again."""

    sandbox: Path
    stages: Callable[[str], list[list[Child]]]
    """The processes of a Shoot, stage by stage; of `SHARED`, what all Shoots have in common."""
    keep: Callable[[Child], Restarter]
    """A restarter that the state of the sandbox shows."""
    drop: Callable[[str], None]
    """Take the child of this name out of the state again."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _running: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    def look_again(self) -> None:
        self._changed.set()

    async def run(self) -> None:
        """Start and end Shoots until cancelled; then end all."""
        async with asyncio.TaskGroup() as group:
            try:
                while True:
                    self._changed.clear()
                    # What all Shoots share serves those that are hibernated, too.
                    shared = {SHARED} if records.names(self.sandbox) else set()
                    await self._follow(group, shared | set(records.awake_names(self.sandbox)))
                    await self._changed.wait()
            finally:
                await self._follow(group, set())

    async def _follow(self, group: asyncio.TaskGroup, wanted: set[str]) -> None:
        # Those that could not be prepared are tried again.
        self._running = {name: task for name, task in self._running.items() if not task.done()}
        gone = [self._running.pop(name) for name in self._running.keys() - wanted]
        for task in gone:
            task.cancel()
        await asyncio.gather(*gone, return_exceptions=True)
        for name in wanted - self._running.keys():
            self._running[name] = group.create_task(self._live(name), name=f"shoot {name}")

    async def _live(self, name: str) -> None:
        """One Shoot, until cancelled."""
        try:
            stages = [[self.keep(child) for child in stage] for stage in self.stages(name)]
        except (WindowboxError, OSError) as error:
            logger.error("shoot %s: %s", name, error)
            return
        restarters = [restarter for stage in stages for restarter in stage]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(k.run(), name=f"keep:{k.child.name}") for k in restarters]
            try:
                for stage in stages:
                    for restarter in stage:
                        restarter.start()
                    await asyncio.gather(*(restarter.ready() for restarter in stage))
                await asyncio.Event().wait()
            finally:
                await asyncio.gather(*(restarter.stop() for restarter in restarters))
                for task in tasks:
                    task.cancel()
                for restarter in restarters:
                    self.drop(restarter.child.name)
