"""Handlers that behave as the name of an object says, pools that run them, and a record of their runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from bus import intents, streams, subjects
from bus.messages import Reason, StatusIntent, Wish
from bus.outcomes import Done, Outcome
from bus.transport.connection import Bus
from bus.workqueue.pool import Item, Pool
from bus.workqueue.queue import Queue
from bus.workqueue.routing import run_due
from tests.support.running import PATIENCE, eventually, running
from windowbox.errors import Unreachable, WindowboxError
from windowbox.models.refs import ObjectRef

POOL = "test"

EVENT = Wish(reason=Reason.EVENT)


def key(name: str) -> str:
    return subjects.key(ObjectRef("runtime", "webs.example.com", "default", name))


async def wish(bus: Bus, name: str, wanted: Wish = EVENT) -> None:
    await Queue(bus, POOL).wish(key(name), wanted)


async def waiting(bus: Bus, stream: str) -> list[str]:
    """The subjects of all messages of the pool that a stream holds."""
    info = await bus.api(f"STREAM.INFO.{stream}", {"subjects_filter": f"*.{POOL}.>"})
    return list(info["state"].get("subjects", ()))


async def comes_to_rest(bus: Bus, patience: float = PATIENCE) -> None:
    """Wait until the pool has no wishes and no items."""

    async def rests() -> bool:
        with contextlib.suppress(WindowboxError):  # while no server answers
            return not await waiting(bus, streams.TRIGGERS) and not await waiting(bus, streams.WORK)
        return False

    await eventually(rests, patience)


@dataclass(frozen=True)
class Said:
    """A word of a handler: begin, end, left (cancelled or failed), or aside."""

    word: str
    name: str
    reason: str
    insist: bool
    at: float
    process: int

    @property
    def short(self) -> str:
        return f"{self.word} {self.name}"


@dataclass
class Telling:
    """Handles each item by the name of its object.

    `gated…` waits until `gate` is set; `stubborn…` too, and it stops slowly; `deadly…` kills the process;
    `hanging…` blocks it; `reporting…` waits, and reports its process; `failing…` raises Unreachable;
    `broken…` has a bug in its first three attempts; `lasting…` takes up to two seconds.
    """

    bus: Bus
    tell: Callable[[Said], None]
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    who: int = field(default_factory=os.getpid)

    async def handle(self, item: Item) -> Outcome:
        before = await intents.last(self.bus, item.key)
        self._say("begin", item)
        try:
            await self._act(item, before.sequence)
        except BaseException:
            self._say("left", item)
            raise
        self._say("end", item)
        return Done()

    async def quarantine(self, item: Item) -> None:
        self._say("aside", item)

    async def _act(self, item: Item, reported: int) -> None:
        match subjects.ref(item.key).name.split("-")[0]:
            case "gated":
                await self.gate.wait()
            case "stubborn":
                try:
                    await self.gate.wait()
                finally:
                    await asyncio.sleep(0.3)  # it stops slowly, even when it is cancelled
            case "deadly":
                os.kill(os.getpid(), signal.SIGKILL)
            case "hanging":
                time.sleep(2)  # noqa: ASYNC251
            case "lasting":
                await asyncio.sleep(random.uniform(0, 2))  # calls to the outside take some time
            case "failing" if not self.gate.is_set():
                raise Unreachable("the world is away")
            case "broken" if item.wish.attempt < 3:
                raise ZeroDivisionError("a bug")
            case "reporting":
                await self.gate.wait()
                by = StatusIntent(uid="u", patch={"by": self.who})
                await intents.report(self.bus, item.key, by, reported)

    def _say(self, word: str, item: Item) -> None:
        name = subjects.ref(item.key).name
        self.tell(Said(word, name, item.wish.reason, item.wish.insist, time.monotonic(), self.who))


class Doing:
    """A handler of one function."""

    def __init__(self, act: Callable[[Item], Awaitable[Outcome]]) -> None:
        self._act = act

    async def handle(self, item: Item) -> Outcome:
        return await self._act(item)

    async def quarantine(self, item: Item) -> None:
        raise AssertionError(f"{item.key} is quarantined")


class Story:
    """What handlers have said so far."""

    def __init__(self) -> None:
        self.all: list[Said] = []
        self._more = asyncio.Event()

    def add(self, said: Said) -> None:
        self.all.append(said)
        self._more.set()
        self._more = asyncio.Event()

    @property
    def shorts(self) -> list[str]:
        return [said.short for said in self.all]

    def times(self, short: str) -> int:
        return self.shorts.count(short)

    async def until(self, short: str, times: int = 1) -> None:
        """Wait until this was said so many times."""
        await self.until_so(lambda: self.times(short) >= times, f"{times} x {short!r}")

    async def until_so(self, is_so: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(60):
                while not is_so():
                    await self._more.wait()
        except TimeoutError:
            raise AssertionError(f"never said: {what}; said was {self.shorts}") from None


@dataclass
class Working:
    """A pool that runs in this process."""

    queue: Queue
    handler: Telling
    story: Story
    task: asyncio.Task[None]

    async def wish(self, name: str, wanted: Wish = EVENT) -> None:
        await self.queue.wish(key(name), wanted)

    async def begin(self, name: str, wanted: Wish = EVENT, times: int = 1) -> None:
        """Wish for an object, and wait until its run has begun."""
        await self.wish(name, wanted)
        await self.story.until(f"begin {name}", times)

    async def end(self, name: str, times: int = 1) -> None:
        """Open the gate, and wait until the run of an object has ended."""
        self.handler.gate.set()
        await self.story.until(f"end {name}", times)


@contextlib.asynccontextmanager
async def working(
    bus: Bus,
    handling: type[Telling] = Telling,
    *,
    story: Story | None = None,
    who: int = 0,
    **options: Any,
) -> AsyncIterator[Working]:
    """Run a pool as long as the body lasts; two pools may tell one story."""
    story, queue = story or Story(), Queue(bus, POOL)
    handler = handling(bus, story.add, who=who or os.getpid())
    async with running(Pool(bus, POOL, handler, **options).run(), run_due(bus, queue)) as (task, _):
        yield Working(queue, handler, story, task)


def overlaps(story: list[Said]) -> list[tuple[Said, Said]]:
    """Runs of one object that began before another one of it had ended."""
    running: dict[str, dict[int, Said]] = {}
    found = []
    for said in sorted(story, key=lambda s: s.at):
        mine = running.setdefault(said.name, {})
        if said.word == "begin":
            found += [(other, said) for other in mine.values()]
            mine[said.process] = said
        elif said.word in ("end", "left"):
            mine.pop(said.process, None)
    return found
