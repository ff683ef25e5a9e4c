"""Clients that connect all the time; failures without an excuse are faults."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from tests.chaos.breaking import Envoys, Nodes, Outages
from tests.chaos.services import Place, Services, Shown, Witness
from tests.host.simulated import world

_PATIENCE = 15.0
_RATE = 30
_HEALTH = 10256


@dataclass(frozen=True)
class Failure:
    """A connection that did not do what its client expected."""

    uid: str
    place: Place
    what: str
    """`connect`: nobody listened. `greeting`: nobody spoke. `lasting`: it was cut when it was old."""
    error: str
    began: float
    ended: float
    at: datetime
    node: str = ""
    """Who had answered, if anybody had."""

    def __str__(self) -> str:
        took = self.ended - self.began
        where = f"{self.uid} {self.place[0]}/{self.place[1]} {self.node}"
        return f"{self.at:%H:%M:%S.%f} {where}: {self.what}: {self.error} after {took:.2f} s"


@dataclass
class Call:
    """A connection that is being made, or has been."""

    address: str
    port: int
    what: str = "connect"
    node: str = ""
    began: float = field(default_factory=time.monotonic)

    async def greeted(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with asyncio.timeout(_PATIENCE):
            reader, writer = await asyncio.open_connection(self.address, self.port)
            self.what = "greeting"
            line = (await reader.readline()).decode()
            self.node = line.partition(" ")[0].removeprefix("node=")
            if not self.node:
                writer.close()
                raise ConnectionResetError("closed without a word")
            return reader, writer


@dataclass
class Callers:
    """Connects to whatever the status of a Service promises, and its owner still wants."""

    services: Services
    witness: Witness
    node: str
    """The address of a node that always serves, but for what may be wrong with the machine."""
    chance: random.Random
    served: Counter[tuple[str, Place]] = field(default_factory=Counter)
    first: dict[tuple[str, Place], float] = field(default_factory=dict)
    """When a port served somebody for the first time."""
    failures: list[Failure] = field(default_factory=list)
    silent: Outages = field(default_factory=Outages)
    """When not even that node answered."""

    async def run(self) -> None:
        """Call, for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_node(), name="node")
            lasting: set[tuple[str, Place]] = set()
            while True:
                targets = list(self._targets())
                for one, place in targets:
                    if (one.uid, place) not in lasting and self.served[one.uid, place]:
                        lasting.add((one.uid, place))
                        group.create_task(self._stay(one, place), name="lasting")
                if targets:
                    group.create_task(self._call(*self.chance.choice(targets)), name="call")
                await asyncio.sleep(1 / _RATE)  # the pace of the clients

    def served_before(self, failure: Failure) -> bool:
        """Whether anybody had been served there when this connection began."""
        return self.first.get((failure.uid, failure.place), failure.ended) < failure.began

    def _targets(self) -> Iterator[tuple[Shown, Place]]:
        for uid, shown in self.witness.shown.items():
            if wanted := self.services.by_uid.get(uid):
                for place in shown.ports & wanted.ports:
                    if place[1] == "TCP":
                        yield shown, place

    async def _call(self, shown: Shown, place: Place) -> None:
        async with self._noting(shown, place) as call:
            _, writer = await call.greeted()
            self.served[shown.uid, place] += 1
            self.first.setdefault((shown.uid, place), time.monotonic())
            writer.close()

    async def _stay(self, shown: Shown, place: Place) -> None:
        """A connection that is kept for as long as it lasts, and then opened again."""
        while place in self.services.by_uid[shown.uid].ports:
            async with self._noting(shown, place) as call:
                reader, writer = await call.greeted()
                with contextlib.closing(writer):
                    call.what, call.began = "lasting", time.monotonic()
                    said = await reader.read(1)
                    raise ConnectionResetError(f"it said {said!r}")
            await asyncio.sleep(0.5)  # as any client does, before it connects again

    @contextlib.asynccontextmanager
    async def _noting(self, shown: Shown, place: Place) -> AsyncIterator[Call]:
        call = Call(shown.address, place[0])
        try:
            yield call
        except (OSError, TimeoutError) as error:
            self.failures.append(
                Failure(
                    shown.uid, place, call.what, repr(error), call.began, time.monotonic(),
                    datetime.now(), call.node,
                )
            )  # fmt: skip

    async def _watch_node(self) -> None:
        while True:
            status, _ = await world.health(self.node, _HEALTH)
            (self.silent.end if status == 200 else self.silent.begin)()
            await asyncio.sleep(0.25)  # a sample: what fails is found by asking


_SHORTLY = 1.0
"""Seconds. What happens so shortly after something was away may still be because of it."""
_CHECKS_PER_SECOND = 50
"""Envoy makes no more than a few at once, so the more endpoints, the later it finds out that one is back."""
_HEARD = 5.0
"""Seconds from the promise of a port until nodes have heard of it, too."""
_LOST = 2
"""So many connections may be lost with a node: those that it had taken, but not yet looked at."""


@dataclass
class Excuses:
    callers: Callers
    envoys: Envoys
    nodes: Nodes

    def faults(self) -> list[str]:
        """In words, all failures without an excuse."""
        reported = {failure: self._excuse(failure) for failure in self.callers.failures}
        known = self.callers.services.by_uid
        faults = [f"{known[one.uid].name} {one}" for one, excuse in reported.items() if not excuse]
        lost = Counter(reported.values())["the node broke"]
        most = _LOST * len(self.nodes.broken.spans)
        return faults + (
            [f"{lost} connections were lost with nodes, not at most {most}"] if lost > most else []
        )

    def counted(self) -> dict[str, int]:
        """How many connections were served, and failed for which reason."""
        reported = Counter(self._excuse(failure) or "no excuse" for failure in self.callers.failures)
        return {"served": self.callers.served.total(), **reported}

    def _excuse(self, failure: Failure) -> str:
        return next(self._excuses(failure), "")

    def _excuses(self, failure: Failure) -> Iterator[str]:
        began, ended = failure.began, failure.ended
        if failure.what == "lasting":
            began = ended  # it failed in the end, whenever it was made
        wanted = self.callers.services.by_uid[failure.uid]
        if wanted.given_up.get(failure.place, ended + 1) <= ended:
            yield "no longer wanted"
        if self.envoys.down.touch(began, ended, _SHORTLY):
            yield "Envoy was down"
        if failure.what == "lasting":
            return
        promised = self.callers.witness.since[failure.uid, failure.place]
        if not self.callers.served_before(failure) and began < promised + _HEARD:
            yield "the nodes have not heard yet"
        if self.callers.silent.touch(began, ended, self._checked()):
            yield "no node answered"
        if failure.what == "greeting" and self.nodes.broken.touch(began, ended, _SHORTLY):
            yield "the node broke"

    def _checked(self) -> float:
        """Seconds until Envoy has found out that a node answers health checks again."""
        ports = sum(len(wanted.ports) for wanted in self.callers.services.living.values())
        return 3.0 + ports * self.nodes.count / _CHECKS_PER_SECOND
