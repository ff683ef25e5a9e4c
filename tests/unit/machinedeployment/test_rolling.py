"""The next step of a rolling update."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.machinefacts import deployment, machine_set, state
from tests.support.rules import rule
from workers.machines import deployments
from workers.machines.deployment import setsizes
from workers.machines.deployment.deploymentstate import State

OLD, OLDER, NEW = "old-x", "old", "new-set"


def rolled(of: tuple[int, Any, Any], old: tuple[int, int], new: tuple[int, int], *, going: int = 0) -> State:
    """A deployment (replicas, surge, unavailable), its old and new set (replicas, available)."""
    sets = [
        machine_set(OLD, old[0], available=old[1], existing=old[0]),
        machine_set(NEW, new[0], available=new[1], existing=new[0], class_name="big"),
    ]
    return state(deployment(*of), *sets, terminating=[OLD] * going)


@pytest.mark.parametrize(
    ("found", "sizes"),
    [
        pytest.param(rolled((3, 1, 0), (3, 3), (0, 0)), {NEW: 1}, id="C5-grows-by-surge"),
        pytest.param(rolled((3, 1, 0), (3, 3), (1, 0)), {}, id="C5-waits-for-the-new-one"),
        pytest.param(rolled((3, 1, 0), (3, 3), (1, 1)), {OLD: 2}, id="C5-old-makes-way"),
        pytest.param(rolled((3, 1, 0), (2, 2), (1, 1)), {NEW: 2}, id="C5-grows-again"),
        pytest.param(rolled((3, 1, 0), (1, 1), (3, 3)), {OLD: 0}, id="C5-last-step"),
        pytest.param(rolled((3, 1, 0), (0, 0), (3, 3)), {}, id="C5-done"),
        pytest.param(rolled((3, 0, 1), (3, 3), (0, 0)), {OLD: 2}, id="C5-without-surge"),
        pytest.param(rolled((3, 0, 1), (2, 2), (0, 0)), {NEW: 1}, id="C5-without-surge-replaces"),
        pytest.param(rolled((3, 0, 1), (2, 2), (1, 0)), {}, id="C5-without-surge-waits"),
        pytest.param(rolled((3, 0, 0), (3, 3), (0, 0)), {OLD: 2}, id="C5-both-zero"),
        pytest.param(rolled((4, "25%", "25%"), (4, 4), (1, 0)), {OLD: 3}, id="C5-percent"),
        pytest.param(rolled((3, 1, 0), (3, 1), (1, 1)), {OLD: 2}, id="C5-unavailable-old-first"),
        pytest.param(rolled((3, 1, 0), (3, 0), (1, 1)), {OLD: 2}, id="C5-unavailable-old-within-limits"),
        pytest.param(rolled((3, 1, 0), (0, 0), (5, 5)), {NEW: 3}, id="C5-new-too-large"),
        pytest.param(rolled((3, 1, 0), (2, 3), (1, 1)), {NEW: 2}, id="C5-old-still-shrinks"),
        pytest.param(rolled((3, 1, 0), (2, 2), (1, 1), going=1), {NEW: 2}, id="C5-R1+L33-slow-deletion"),
    ],
)
def test_step(found: State, sizes: setsizes.Sizes) -> None:
    assert found.new
    assert setsizes.step(found, found.new) == sizes


@rule("C5")
def test_the_oldest_sets_shrink_first() -> None:
    sets = [
        machine_set(OLDER, 2),
        machine_set(OLD, 2),
        machine_set(NEW, 2, class_name="big"),
    ]
    found = state(deployment(4, 2, 0), *sets)
    assert found.new
    assert setsizes.step(found, found.new) == {OLDER: 0}


@rule("C5")
def test_machines_to_come_count_for_the_surge() -> None:
    sets = [machine_set(OLD, 3), machine_set(NEW, 1, available=0, existing=0, class_name="big")]
    found = state(deployment(3, 1, 0), *sets)
    assert found.new
    assert setsizes.step(found, found.new) == {}


@rule("C5")
@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "size"), [(3, 1, 0, 3), (0, 1, 0, 0), (5, "50%", 0, 5)]
)
def test_a_first_set_has_all_machines_at_once(replicas: int, surge: Any, unavailable: Any, size: int) -> None:
    assert setsizes.first_size(state(deployment(replicas, surge, unavailable))) == size


@pytest.mark.parametrize(
    ("surge", "unavailable", "wanted"),
    [
        pytest.param("25%", "25%", (1, 0), id="C5-quarter-of-three"),
        pytest.param(0, "10%", (0, 1), id="C5-forced"),
        pytest.param("100%", 7, (3, 3), id="C5-no-more-than-all"),
    ],
)
def test_fenceposts(surge: Any, unavailable: Any, wanted: tuple[int, int]) -> None:
    found = deployments.checked(deployment(3, surge, unavailable))
    assert (found.surge, found.unavailable) == wanted
