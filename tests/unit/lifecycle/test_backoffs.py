"""Delays before the next attempt: after an error, and between repairs that another program reverts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.rules import rule
from windowbox.errors import Conflict, Forbidden, Malformed, Refused, Unreachable, Waiting, WindowboxError
from windowbox.models.objects import Object
from windowbox.models.refs import INFRASTRUCTURES, RUNTIME, ObjectRef
from workers.core.conflictbackoff import ConflictBackoff
from workers.core.reconcile import BACKOFF, EXTENSION_BACKOFF, Backoff
from workers.core.recorder import ChangeTracker

T = TypeVar("T")

AWAY, WRONG, CONFLICT = Unreachable("the server is away"), Malformed("spec is wrong"), Conflict("changed")
FORBIDDEN = Forbidden("forbidden")
ONE, OTHER = (ObjectRef(RUNTIME, INFRASTRUCTURES.id, "shoot", name) for name in ("one", "other"))


@pytest.mark.parametrize(
    ("policy", "error", "first", "delays"),
    [
        pytest.param(EXTENSION_BACKOFF, AWAY, 1, (0.005, 0.01, 0.02, 0.04), id="B-1-first"),
        pytest.param(EXTENSION_BACKOFF, AWAY, 17, (327.68, 655.36, 1000, 1000), id="B-1+V-9-transient"),
        pytest.param(EXTENSION_BACKOFF, AWAY, 10**9, (1000,), id="B-1-for-ever"),
        pytest.param(EXTENSION_BACKOFF, WRONG, 1, (30, 60, 120, 240, 480, 960, 1000, 1000), id="V-9-late"),
        pytest.param(EXTENSION_BACKOFF, FORBIDDEN, 1, (0.005, 0.01, 0.02), id="B-1-forbidden"),
        pytest.param(BACKOFF, CONFLICT, 1, (0.05, 0.1, 0.2), id="conflict"),
        pytest.param(BACKOFF, AWAY, 1, (0.1, 0.2, 0.4), id="transient"),
        pytest.param(BACKOFF, WRONG, 1, (5, 10, 20, 40, 80, 160, 300, 300), id="LB-16-backoff"),
        pytest.param(BACKOFF, Waiting("for the tide", retry_after=7), 1, (7, 7, 7), id="LB-6-delay"),
    ],
)
def test_delays_double_up_to_a_ceiling(
    policy: Backoff, error: WindowboxError, first: int, delays: tuple[float, ...]
) -> None:
    found = [policy.delay(error, first + number) for number in range(len(delays))]
    assert all(plain <= one <= plain * 1.1 + 1e-9 for one, plain in zip(found, delays, strict=True)), found


@rule("B-1")
@given(st.integers(1, 10**9), st.sampled_from([AWAY, WRONG, CONFLICT, FORBIDDEN]))
def test_a_delay_is_never_longer_than_the_ceiling(attempt: int, error: WindowboxError) -> None:
    assert 0 < BACKOFF.delay(error, attempt) <= BACKOFF.longest * 1.1


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_repair_delays_double_up_to_a_minute() -> None:
    clock, pauses = Clock(), []
    conflicts = ConflictBackoff(clock)
    for _ in range(13):
        pauses.append(conflicts.remaining(ONE))
        clock.now += pauses[-1]
        conflicts.repaired(ONE)
    assert pauses == [0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60]
    assert conflicts.remaining(OTHER) == 0


def test_a_while_without_repairs_ends_the_backoff() -> None:
    clock = Clock()
    conflicts = ConflictBackoff(clock)
    for _ in range(9):
        conflicts.repaired(ONE)
    assert conflicts.remaining(ONE) == 16
    clock.now += 300
    conflicts.repaired(ONE)
    assert conflicts.remaining(ONE) == 0


@given(st.lists(st.floats(0, 10), max_size=60))
def test_repairs_become_few_however_fast_they_are_reverted(delays: list[float]) -> None:
    clock, repairs = Clock(), 0
    conflicts = ConflictBackoff(clock)
    for delay in delays:
        clock.now += delay
        if conflicts.remaining(ONE) == 0:
            conflicts.repaired(ONE)
            repairs += 1
    # 1 + 2 + 4 + … + 32 seconds between the first six of those that have to wait, then a minute each time.
    assert repairs <= 5 + 6 + (clock.now - 1000) / 60


class Simulated:
    """A recorder whose calls all end in the same way."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def read(self, ref: ObjectRef) -> Object | None:
        return None

    async def call(
        self, door: str, request: Any, act: Callable[..., Awaitable[Any]], *args: Any, effect: bool = False
    ) -> Any:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    def wrote(self, ref: ObjectRef, version: str) -> None: ...

    async def time(self) -> datetime:
        return datetime.now(UTC)

    async def secret(self, ref: ObjectRef, parse: Callable[[Mapping[str, bytes]], T]) -> T | None:
        return None


async def _act() -> None: ...


@pytest.mark.parametrize(
    ("answer", "effect", "changed"),
    [
        pytest.param("uid", True, True, id="written"),
        pytest.param(None, True, True, id="an-effect-without-an-answer"),
        pytest.param(False, True, False, id="nothing-to-do"),
        pytest.param({"names": {}, "changed": False}, True, False, id="nothing-to-do-and-more"),
        pytest.param({"names": {}, "changed": True}, True, True, id="written-and-more"),
        pytest.param("uid", False, False, id="a-question"),
    ],
)
async def test_effects_that_change_the_world_are_noticed(answer: Any, effect: bool, changed: bool) -> None:
    recorder = ChangeTracker(Simulated(answer))
    assert await recorder.call("door", None, _act, effect=effect) == answer
    assert recorder.changed is changed


async def test_a_failed_effect_has_changed_nothing() -> None:
    recorder = ChangeTracker(Simulated(Refused("no")))
    with pytest.raises(Refused):
        await recorder.call("door", None, _act, effect=True)
    assert not recorder.changed
