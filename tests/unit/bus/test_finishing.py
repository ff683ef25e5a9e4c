"""What is finished however often its caller is cancelled."""

from __future__ import annotations

import asyncio

import pytest

from bus.transport.finishing import to_end
from windowbox.errors import Unreachable


@pytest.mark.parametrize("error", [None, Unreachable("away")], ids=["answered", "failed"])
async def test_two_cancellations_wait_for_the_end(error: Unreachable | None) -> None:
    answered, ended = asyncio.Event(), asyncio.Event()

    async def ask() -> None:
        await answered.wait()
        ended.set()
        if error:
            raise error

    asking = asyncio.create_task(to_end(ask()))
    await asyncio.sleep(0)  # it begins
    for _ in range(2):
        asking.cancel()
        await asyncio.wait([asking], timeout=0.01)
        assert not asking.done()
    answered.set()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert ended.is_set()


async def test_an_answer_and_a_failure_are_handed_on() -> None:
    async def answer() -> str:
        return "answer"

    assert await to_end(answer()) == "answer"
    failed = asyncio.get_running_loop().create_future()
    failed.set_exception(Unreachable("away"))
    with pytest.raises(Unreachable):
        await to_end(failed)
