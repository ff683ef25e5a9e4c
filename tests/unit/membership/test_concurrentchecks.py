"""Questions to many clusters, some of which do not answer."""

from __future__ import annotations

import asyncio

from tests.support.running import soon
from windowbox.errors import Unreachable
from workers.kinds.membership.concurrentchecks import Checks


async def hang() -> None:
    await asyncio.Event().wait()


async def test_others_are_asked_while_a_hundred_do_not_answer() -> None:
    checks, answered = Checks(), asyncio.Event()

    async def answer() -> None:
        answered.set()

    async with checks.running():
        for number in range(100):
            checks.begin(number, hang)
        checks.begin("good", answer)
        await soon(answered.wait())


async def test_who_has_failed_is_asked_again_later() -> None:
    checks, asked = Checks(), list[str]()

    async def fail() -> None:
        asked.append("bad")
        raise Unreachable("it does not answer")

    async def answer() -> None:
        asked.append("good")

    async with checks.running():
        for _ in range(3):
            checks.begin("bad", fail)
            checks.begin("good", answer)
            await checks.settle()
    assert sorted(asked) == ["bad", "good", "good", "good"]


async def test_nobody_is_asked_twice_at_once() -> None:
    checks, asked, gate = Checks(), list[int](), asyncio.Event()

    async def answer() -> None:
        asked.append(1)
        await gate.wait()

    async with checks.running():
        checks.begin("one", answer)
        await asyncio.sleep(0)
        checks.begin("one", answer)
        gate.set()
        await checks.settle()
    assert asked == [1]
