"""What is done under a lease begins while the lease is held, and never afterwards."""

from __future__ import annotations

import asyncio
import time

import pytest

from bus.leases.leases import _Share
from bus.leases.liveness import Life
from tests.support.running import running, soon


@pytest.mark.parametrize("steps", range(6))
async def test_no_act_begins_after_its_lease_was_lost(steps: int) -> None:
    """The lease is lost so many steps of the event loop after it was gained."""
    life, share, began = Life("work"), _Share(), list[str]()
    life.renewed = time.monotonic()

    async def act() -> None:
        began.append("began")
        await asyncio.Event().wait()

    async def do() -> None:
        await share.do(act)

    async with running(_for_ever(), do()) as (share.keeping, _):
        await _steps(3)
        share.gain(life)
        await _steps(steps)
        await soon(share.lost())
        before = list(began)
        await _steps(10)
        assert began == before


async def _for_ever() -> None:
    await asyncio.Event().wait()


async def _steps(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
