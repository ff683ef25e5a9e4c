"""How long changes of DNSRecords wait until they are served."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.load import Load
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Missing, TransientError
from windowbox.models.refs import DNSRECORDS


@dataclass
class Waits:
    """Changes by many writers, at a rate as far as the machine allows, and what became of them."""

    kube: Kube
    load: Load
    rate: float
    writers: int = 16
    made: int = 0
    seconds: list[float] = field(default_factory=list)
    """For each change that was served, or overtaken by a later one that was, how long it waited."""
    _open: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    """Generations that are not served yet, by record, and when they were written."""
    _served: dict[str, int] = field(default_factory=dict)
    _none_left: asyncio.Event = field(default_factory=asyncio.Event)

    async def go_on(self, until: asyncio.Event) -> None:
        """Change records until the event."""
        names = sorted(self.load.wanted)
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self._watch())
            writers = [
                group.create_task(self._write(names[number :: self.writers], number, began, until))
                for number in range(self.writers)
            ]
            await asyncio.wait(writers)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(300):
                    await self._none_left.wait()
            watching.cancel()

    def percentile(self, percent: float) -> float:
        return sorted(self.seconds)[min(int(len(self.seconds) * percent / 100), len(self.seconds) - 1)]

    async def _write(self, names: list[str], number: int, began: float, until: asyncio.Event) -> None:
        chance, done = random.Random(number), 0
        while not until.is_set():
            name = names[done % len(names)]
            address = f"10.{chance.randrange(256)}.{chance.randrange(256)}.{chance.randrange(1, 255)}"
            written = time.monotonic()
            generation = await self.load.change(name, address)
            self._open.setdefault(name, []).append((generation, written))
            self._none_left.clear()
            self._close(name)
            self.made, done = self.made + 1, done + 1
            due = began + done * self.writers / self.rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))  # the pace of the load

    async def _watch(self) -> None:
        while True:
            with contextlib.suppress(TransientError, Missing):  # a version may be too old to watch from
                page = await self.kube.page(DNSRECORDS)
                for record in page.items:
                    self._see(record)
                async for events in self.kube.watch(DNSRECORDS, page.resource_version):
                    for event in events:
                        self._see(event.object)
            await asyncio.sleep(0.1)  # as any client does, before it looks again

    def _see(self, record: dict[str, Any]) -> None:
        status = record.get("status") or {}
        if (status.get("lastOperation") or {}).get("state") == "Succeeded":
            name = record["metadata"]["name"]
            self._served[name] = max(self._served.get(name, 0), status.get("observedGeneration", 0))
            self._close(name)

    def _close(self, name: str) -> None:
        """Of the changes of a record, count those that are served by now."""
        served, now = self._served.get(name, 0), time.monotonic()
        waiting = self._open.get(name, [])
        self.seconds += [now - written for generation, written in waiting if generation <= served]
        waiting[:] = [one for one in waiting if one[0] > served]
        if not any(self._open.values()):
            self._none_left.set()
