"""The Envoy of the edge: killed now and then, and watched for ending otherwise."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.outages import Outages
from tests.support.running import eventually
from windowbox.errors import WindowboxError
from workers.loadbalancer.envoy import admin
from workers.loadbalancer.envoy.process import Process, Processes

logger = logging.getLogger(__name__)


class Envoys:
    """Knows when there was no Envoy. `run` must be running."""

    def __init__(self, folder: Path) -> None:
        self.down = Outages()
        self.problems: list[str] = []
        self._folder = folder
        self._attachment = Processes(folder)
        self._killed: set[int] = set()

    @property
    def kills(self) -> int:
        return len(self._killed)

    async def run(self) -> None:
        """Note when an Envoy ends and when the next one serves, for ever."""
        seen: set[int] = set()
        while True:
            envoy = await eventually(lambda: self._other_than(seen), patience=600)
            assert envoy
            seen.add(envoy.pid)
            with (self._folder / "edge" / str(envoy.generation) / "envoy.log").open() as log:
                live = asyncio.create_task(self._until_live(envoy))
                await envoy.ended()
                live.cancel()
                self.down.begin()  # for `kill` a moment ago
                if envoy.pid not in self._killed:
                    said = "".join(line for line in log if "work-in-progress" not in line)
                    self.problems.append(f"an Envoy that nobody killed has ended: {said[-2000:]}")

    async def kill(self) -> None:
        """End the Envoy as a crash would, if there is one."""
        for envoy in await self.found():
            logger.warning("havoc: kill -9 envoy")
            self._killed.add(envoy.pid)
            self.down.begin()
            with contextlib.suppress(ProcessLookupError):
                os.kill(envoy.pid, signal.SIGKILL)

    async def found(self) -> Sequence[Process]:
        """Those that run; one, if all is well."""
        return [one for one in await self._attachment.found("edge") if isinstance(one, Process)]

    async def _other_than(self, seen: set[int]) -> Process | None:
        return next((one for one in await self.found() if one.pid not in seen), None)

    async def _until_live(self, envoy: Process) -> None:
        while True:
            with contextlib.suppress(WindowboxError, asyncio.IncompleteReadError):
                if (await admin.standing(envoy)).live:
                    self.down.end()
                    return
            await asyncio.sleep(0.05)  # Envoy has to be asked
