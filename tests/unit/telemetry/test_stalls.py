"""An event loop that stands still, and who is named."""

from __future__ import annotations

import asyncio
import linecache
import logging
import time

import pytest

from tests.support.running import soon
from windowbox.telemetry import metrics, stalls


async def compute(seconds: float) -> None:
    time.sleep(seconds)  # noqa: ASYNC251


async def test_the_task_that_holds_the_loop_up_is_named(caplog: pytest.LogCaptureFixture) -> None:
    with stalls.watched(), caplog.at_level(logging.WARNING):
        await asyncio.create_task(asyncio.sleep(0.2))  # the watchdog looks several times meanwhile
        await soon(asyncio.create_task(compute(1.0), name="work.pool.the-object"))
    warned = [record.getMessage() for record in caplog.records]
    assert any("work.pool.the-object" in line and "test_stalls.py" in line for line in warned), warned
    assert stalls.culprit(within=60) == "work.pool.the-object"


async def test_no_source_is_kept_for_a_stack_that_was_logged(caplog: pytest.LogCaptureFixture) -> None:
    linecache.clearcache()
    with stalls.watched(), caplog.at_level(logging.WARNING):
        await asyncio.create_task(asyncio.sleep(0.2))  # the watchdog looks several times meanwhile
        await soon(asyncio.create_task(compute(1.0)))
    assert "busy" in caplog.text
    assert [file for file in linecache.cache if file.endswith("test_stalls.py")] == []


async def test_a_loop_that_only_waits_is_blamed_for_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with stalls.watched(), caplog.at_level(logging.WARNING):
        await asyncio.sleep(1.0)  # longer than the watchdog takes to look
    assert not [r for r in caplog.records if "busy" in r.getMessage()]


async def test_lateness_is_measured() -> None:
    def late() -> float:
        return float(metrics.loop_lag._sum.get())

    before = late()
    with stalls.watched():
        await asyncio.sleep(0.15)  # a beat is due after half a second
        await compute(0.7)
        await asyncio.sleep(0.1)  # the loop is not blocked meanwhile
    assert late() - before > 0.2
