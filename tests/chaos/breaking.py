"""Envoys that are killed, and nodes that come, change, break and go; and when each was away."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandbox.simulated import nodes
from sandbox.simulated.openports import BEHAVIOUR
from tests.chaos.load import insist
from tests.support.running import eventually
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import WindowboxError
from windowbox.models.refs import NODES
from workers.loadbalancer.edge.trafficnodes import DRAINED, EXCLUDED
from workers.loadbalancer.envoy import admin
from workers.loadbalancer.envoy.process import Process, Processes


@dataclass
class Outages:
    """Spans of time, the last of which may not be over yet."""

    spans: list[tuple[float, float]] = field(default_factory=list)

    def begin(self) -> None:
        """From now on it is away, if it was not already."""
        if not self._open():
            self.spans.append((time.monotonic(), float("inf")))

    def end(self) -> None:
        """It is back."""
        if self._open():
            self.spans[-1] = (self.spans[-1][0], time.monotonic())

    def touch(self, began: float, ended: float, margin: float) -> bool:
        """Whether it was away at some time between these two, or shortly before."""
        return any(began <= back + margin and away <= ended for away, back in self.spans)

    def seconds(self) -> list[float]:
        """How long each lasted, of those that are over."""
        return [round(back - away, 2) for away, back in self.spans if back != float("inf")]

    def _open(self) -> bool:
        return bool(self.spans) and self.spans[-1][1] == float("inf")


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
                if await admin.is_live(envoy):
                    self.down.end()
                    return
            await asyncio.sleep(0.05)  # Envoy has to be asked


_NOTICE = 5.0
"""Seconds from the announcement that a node will go until it does: health checks alone take three."""


@dataclass
class Nodes:
    """An owner of simulated nodes."""

    kube: Kube
    network: str
    count: int
    chance: random.Random
    broken: Outages = field(default_factory=Outages)
    """When a node went without notice, and took along whom it had just let in."""

    @property
    def steady(self) -> str:
        """The address of the node that always serves."""
        return nodes.addresses(self.network, 1)[0]

    async def run(self, seconds: float) -> None:
        """Do this and that to one node after the other, for so long. In the end one takes no traffic."""
        deadline = asyncio.get_running_loop().time() + seconds
        what: list[Callable[[str], Awaitable[None]]] = [self._leave, self._exclude, self._break, self._join]
        while asyncio.get_running_loop().time() < deadline:
            self.chance.shuffle(what)
            for act in what:
                await act(f"simulated-{self.chance.randrange(2, self.count + 1)}")
                await asyncio.sleep(self.chance.random())  # the pace of the chaos, as below
        await self._label(f"simulated-{self.count}", "true")

    async def _leave(self, name: str) -> None:
        await self._go(name)
        await asyncio.sleep(1 + self.chance.random())  # so long it is away
        await self._register(self.count)

    async def _join(self, _: str) -> None:
        await self._register(self.count + 1)
        await asyncio.sleep(2)  # so long it takes part
        await self._go(f"simulated-{self.count + 1}")

    async def _exclude(self, name: str) -> None:
        await self._label(name, "true")
        await asyncio.sleep(1 + self.chance.random())  # so long it takes no traffic
        await self._label(name, None)

    async def _break(self, name: str) -> None:
        for how in (self.chance.choice(["refuse", "drop"]), None):
            self.broken.begin()
            await self._merge(name, {"metadata": {"annotations": {BEHAVIOUR: how}}})
            self.broken.end()
            await asyncio.sleep(2 + self.chance.random())  # so long it is broken, or whole

    async def _go(self, name: str) -> None:
        taint = {"key": DRAINED, "effect": "NoSchedule"}
        await self._merge(name, {"spec": {"taints": [taint]}})
        await asyncio.sleep(_NOTICE)  # who drains a node waits before it goes
        await insist(lambda: self.kube.delete(NODES, "", name))

    async def _register(self, count: int) -> None:
        await insist(lambda: nodes.register(self.kube, count, self.network))

    async def _label(self, name: str, value: str | None) -> None:
        await self._merge(name, {"metadata": {"labels": {EXCLUDED: value}}})

    async def _merge(self, name: str, patch: dict[str, Any]) -> None:
        logger.warning("%s: %s", name, patch)
        await insist(lambda: self.kube.merge(NODES, "", name, patch))
