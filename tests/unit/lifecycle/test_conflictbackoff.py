"""Two that want an object to be different."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windowbox.errors import Refused
from windowbox.models.objects import Object
from windowbox.models.refs import INFRASTRUCTURES, RUNTIME, ObjectRef
from workers.core.conflictbackoff import ConflictBackoff
from workers.core.recorder import ChangeTracker

T = TypeVar("T")

ONE, OTHER = (ObjectRef(RUNTIME, INFRASTRUCTURES.id, "shoot", name) for name in ("one", "other"))


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_repair_delays_double_up_to_a_minute() -> None:
    clock = Clock()
    conflicts = ConflictBackoff(clock)
    pauses = []
    for _ in range(13):
        pauses.append(conflicts.remaining(ONE))
        clock.now += pauses[-1]
        conflicts.repaired(ONE)
    assert pauses == [0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60]
    assert conflicts.remaining(OTHER) == 0


def test_after_a_while_all_is_well_again() -> None:
    clock = Clock()
    conflicts = ConflictBackoff(clock)
    for _ in range(9):
        conflicts.repaired(ONE)
    assert conflicts.remaining(ONE) == 16
    clock.now += 300
    conflicts.repaired(ONE)
    assert conflicts.remaining(ONE) == 0


@given(st.lists(st.floats(0, 10), max_size=60))
def test_however_fast_the_other_is_repairs_become_few(delays: list[float]) -> None:
    clock = Clock()
    conflicts, repairs = ConflictBackoff(clock), 0
    for delay in delays:
        clock.now += delay
        if conflicts.remaining(ONE) == 0:
            conflicts.repaired(ONE)
            repairs += 1
    # 1 + 2 + 4 + … + 32 seconds between the first six of those that have to wait, then a minute each time.
    assert repairs <= 5 + 6 + (clock.now - 1000) / 60


class Simulated:
    """Doors behind which everything gives one answer."""

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
async def test_what_changes_the_world_is_noticed(answer: Any, effect: bool, changed: bool) -> None:
    recorder = ChangeTracker(Simulated(answer))
    assert await recorder.call("door", None, _act, effect=effect) == answer
    assert recorder.changed is changed


async def test_what_fails_has_changed_nothing() -> None:
    recorder = ChangeTracker(Simulated(Refused("no")))
    with pytest.raises(Refused):
        await recorder.call("door", None, _act, effect=True)
    assert not recorder.changed
