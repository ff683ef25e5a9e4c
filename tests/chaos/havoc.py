"""What goes wrong: every process is killed, every server goes away, the bus forgets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import random
import shutil
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from sandbox.supervisor import Supervisor

SERVERS: Literal[1, 3] = 3 if os.environ.get("CHAOS_NATS") == "3" else 1
PATIENCE = 3 if SERVERS == 3 else 1
"""Everything takes so many times as long: three servers agree on each message, and elect new leaders."""


@contextlib.asynccontextmanager
async def stopped(sandbox: Supervisor) -> AsyncIterator[None]:
    """No server of the bus runs meanwhile."""
    await asyncio.gather(*(sandbox.stop(name) for name in sandbox.bus_servers))
    yield
    await asyncio.gather(*(sandbox.start(name) for name in sandbox.bus_servers))


async def wipe(sandbox: Supervisor) -> None:
    """Let the bus forget everything."""
    async with stopped(sandbox):
        for name in sandbox.bus_servers:
            sandbox.wipe(name)


logger = logging.getLogger(__name__)

Happening = Callable[[], Awaitable[None]]

_OURS = ("watcher", "worker", "patcher")
_PATIENCE = 600.0
"""Seconds until a server that was killed is back: on a machine that others use, too, that takes its time."""


@dataclass(frozen=True)
class Plan:
    """How often what happens, within how many seconds."""

    seconds: float
    kills: int
    """Of each process of ours."""
    bus_restarts: int
    api_restarts: int
    dns_away: float
    """Seconds; 0 where nobody needs the name server."""
    api_kills: int = 0
    dns_kills: int = 0
    wipes: int = 1
    """How often the bus forgets everything, and how often it is rolled back."""


@dataclass
class Havoc:
    sandbox: Supervisor
    plan: Plan
    chance: random.Random
    save_journal: Callable[[], Awaitable[None]]
    """Called while the bus is still there, before it forgets."""
    more: Sequence[Happening] = ()
    """What else goes wrong."""
    killed: Counter[str] = field(default_factory=Counter)
    """How often what was running was killed."""

    async def run(self) -> None:
        """Everything of the plan, at random times."""
        happenings: list[Happening] = []
        for name in self.sandbox.names:
            if name.startswith(_OURS):
                happenings += [lambda n=name: self._kill(n)] * self.plan.kills  # type: ignore[misc]
        happenings += [self._restart_bus] * self.plan.bus_restarts
        happenings += [self._restart_api] * self.plan.api_restarts
        happenings += [self._kill_api] * self.plan.api_kills
        happenings += [self._dns_away] if self.plan.dns_away else []
        happenings += [lambda: self._crash("named")] * self.plan.dns_kills
        happenings += [self._wipe_bus, self._roll_bus_back] * self.plan.wipes
        happenings += self.more
        self.chance.shuffle(happenings)
        pause = self.plan.seconds / len(happenings)
        for happen in happenings:
            await asyncio.sleep(pause * self.chance.random())  # the pace of the chaos
            await happen()

    async def _kill(self, name: str) -> None:
        logger.warning("havoc: kill -9 %s", name)
        self.killed[name] += self.sandbox.state.children[name].pid is not None
        await self.sandbox.kill(name)

    async def _crash(self, name: str) -> None:
        await self._kill(name)
        await self.sandbox.ready(name, patience=_PATIENCE)

    async def _restart_bus(self) -> None:
        """One server, that is the whole bus or a third of it."""
        await self._crash(self.chance.choice(self.sandbox.bus_servers))

    async def _restart_api(self) -> None:
        logger.warning("havoc: the API server goes, etcd is compacted, the API server comes back")
        await self.sandbox.stop("kube-apiserver")
        await asyncio.to_thread(compact, self.sandbox.state.ports["etcd"])
        await self.sandbox.start("kube-apiserver", patience=_PATIENCE)

    async def _kill_api(self) -> None:
        logger.warning("havoc: etcd is compacted")
        await asyncio.to_thread(compact, self.sandbox.state.ports["etcd"])
        await self._crash("kube-apiserver")

    async def _dns_away(self) -> None:
        logger.warning("havoc: named is away for %s s", self.plan.dns_away)
        await self.sandbox.stop("named")
        await asyncio.sleep(self.plan.dns_away)  # the fault that is made
        await self.sandbox.start("named", patience=_PATIENCE)

    async def _wipe_bus(self) -> None:
        logger.warning("havoc: the bus forgets everything")
        await self.save_journal()
        await wipe(self.sandbox)

    async def _roll_bus_back(self) -> None:
        stores = [self.sandbox.store(name) for name in self.sandbox.bus_servers]
        copies = [(store, store.with_name("older")) for store in stores]
        logger.warning("havoc: the bus is rolled back to what it was five seconds ago")
        async with stopped(self.sandbox):
            await asyncio.to_thread(_copied, copies)
        await asyncio.sleep(5)  # what happens meanwhile is what is lost
        await self.save_journal()
        async with stopped(self.sandbox):
            await asyncio.to_thread(_copied, [(copy, store) for store, copy in copies])
        for _, copy in copies:
            shutil.rmtree(copy)


def compact(etcd_port: int) -> None:
    """Have etcd forget all former versions, so that every watch from before is answered with 410."""
    revision = int(_etcd(etcd_port, "range", {"key": "AA=="})["header"]["revision"])
    _etcd(etcd_port, "compaction", {"revision": revision, "physical": True})


def _etcd(port: int, what: str, request: dict[str, object]) -> dict[str, dict[str, str]]:
    url = f"http://127.0.0.1:{port}/v3/kv/{what}"
    with urllib.request.urlopen(url, json.dumps(request).encode(), timeout=20) as answer:
        decoded: dict[str, dict[str, str]] = json.load(answer)
        return decoded


def _copied(folders: Sequence[tuple[Path, Path]]) -> None:
    for source, target in folders:
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)
