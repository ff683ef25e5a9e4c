"""No exception ends a guarded task, or what it does for others."""

from __future__ import annotations

import asyncio
import logging

import pytest

from bus.leases import guard
from bus.leases.guard import Lost
from tests.support import exceptions
from windowbox.errors import Unreachable
from windowbox.telemetry import metrics


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses of guarded tasks, which take no time."""
    found: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        found.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", note)
    return found


@pytest.mark.parametrize("error", exceptions.any_kind(), ids=repr)
async def test_a_guarded_task_goes_on_after_any_exception(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    raised = [error]
    before = counted("thing")

    async def act() -> str:
        if raised:
            raise raised.pop()
        return "done"

    with caplog.at_level(logging.WARNING):
        assert await guard.kept("thing", act) == "done"
    assert counted("thing") == before + 1
    assert "thing: " in caplog.text
    assert "again in 0.2 s" in caplog.text


async def test_pauses_grow_up_to_half_a_minute(pauses: list[float]) -> None:
    left = [ValueError("a bug")] * 10

    async def act() -> None:
        if left:
            raise left.pop()

    await guard.kept("thing", act)
    assert pauses == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]


@pytest.mark.parametrize(
    "error",
    [Lost("x"), ExceptionGroup("of tasks", [ValueError("x"), ExceptionGroup("", [Lost("x")])])],
    ids=repr,
)
async def test_a_lost_lease_passes(error: Exception) -> None:
    async def act() -> None:
        raise error

    with pytest.raises(Lost):
        await guard.kept("thing", act)
    with pytest.raises(type(error)), guard.isolated("thing", "a cluster"):
        raise error


async def test_a_cancellation_passes() -> None:
    task = asyncio.create_task(guard.kept("thing", asyncio.Event().wait))
    await asyncio.sleep(0)  # it begins
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_a_cancellation_passes_that_comes_with_an_error() -> None:
    """A group of tasks then raises the error alone."""
    failing = [ValueError("a bug")]

    async def fail() -> None:
        if failing:
            task.cancel()
            raise failing.pop()

    async def act() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            await asyncio.Event().wait()

    task = asyncio.create_task(guard.kept("thing", act))
    await asyncio.wait([task], timeout=5)
    cancelled = task.cancelled()
    task.cancel()
    assert cancelled


@pytest.mark.parametrize("error", exceptions.bugs(), ids=repr)
def test_a_bug_for_one_cluster_leaves_out_that_cluster_only(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    done, before = [], counted("thing")
    for cluster in ("one", "two", "three"):
        with guard.isolated("thing", cluster):
            if cluster == "two":
                raise error
            done.append(cluster)
    assert done == ["one", "three"]
    assert counted("thing") == before + 1
    assert "two is left out" in caplog.text


def test_an_expected_error_of_one_cluster_is_left_to_its_caller() -> None:
    with pytest.raises(Unreachable), guard.isolated("thing", "a cluster"):
        raise Unreachable("silent")


def counted(task: str) -> float:
    return float(metrics.guarded.labels(task)._value.get())
