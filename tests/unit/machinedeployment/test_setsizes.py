"""The sizes of MachineSets: the next step of a rolling update, and after a change of `replicas`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.machinefacts import deployment, machine_set, sized, state
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
def test_machines_still_to_be_created_count_for_the_surge() -> None:
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


IN_PLACE = {"type": "InPlaceUpdate", "inPlaceUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
RECREATE = {"type": "Recreate"}


def scaled(
    to: int, old: int, new: int, *, before: int, surge: int = 1, strategy: dict[str, Any] | None = None
) -> State:
    """A deployment whose replicas change from `before` to `to`."""
    spec = {"strategy": strategy} if strategy else {}
    sets = [
        machine_set(OLD, old, metadata=sized(before, before + surge)),
        machine_set(NEW, new, class_name="big", metadata=sized(before, before + surge)),
    ]
    return state(deployment(to, surge, 0, spec=spec), *sets)


@pytest.mark.parametrize(
    ("found", "sizes"),
    [
        pytest.param(scaled(5, 0, 3, before=3), {NEW: 5}, id="C6-R2-up"),
        pytest.param(scaled(1, 0, 3, before=3), {NEW: 1}, id="C6-R2-down"),
        pytest.param(scaled(5, 3, 0, before=3), {OLD: 5}, id="C6-R2-only-the-old-one-is-active"),
        pytest.param(scaled(3, 2, 3, before=3), {OLD: 0}, id="C6-R3-saturated"),
        pytest.param(scaled(10, 4, 2, before=5), {OLD: 4, NEW: 7}, id="C6-R4-up-goes-to-the-new-one"),
        pytest.param(scaled(5, 8, 3, before=10), {OLD: 4, NEW: 2}, id="C6-R4-down-in-proportion"),
        pytest.param(scaled(0, 4, 2, before=5), {OLD: 0, NEW: 0}, id="C6-R4-to-nothing"),
        pytest.param(scaled(5, 4, 2, before=6, strategy=RECREATE), {}, id="C6-R4-recreate"),
        pytest.param(scaled(9, 3, 2, before=5, strategy=IN_PLACE), {OLD: 3, NEW: 2}, id="in-place-up"),
        pytest.param(scaled(3, 3, 2, before=5, strategy=IN_PLACE), {OLD: 1, NEW: 2}, id="in-place-down"),
        pytest.param(scaled(1, 3, 2, before=5, strategy=IN_PLACE), {OLD: 0, NEW: 1}, id="in-place-to-one"),
        pytest.param(scaled(0, 3, 2, before=5, strategy=IN_PLACE), {OLD: 0, NEW: 0}, id="in-place-asleep"),
    ],
)
def test_sizes(found: State, sizes: setsizes.Sizes) -> None:
    assert setsizes.scaled(found) == sizes


@pytest.mark.parametrize(
    ("found", "scaling_now"),
    [
        pytest.param(scaled(5, 0, 3, before=3), True, id="C6-R1-other-number"),
        pytest.param(scaled(3, 0, 3, before=3), False, id="C6-R1-same-number"),
        pytest.param(scaled(3, 0, 0, before=3), True, id="C6-R1-from-nothing"),
        pytest.param(
            state(deployment(3), machine_set(OLD, 2, metadata=sized(9, 9))), False, id="C6-R1-no-new-set"
        ),
        pytest.param(
            state(deployment(3), machine_set(NEW, 3, class_name="big")), False, id="C6-R1-not-noted"
        ),
    ],
)
def test_is_scaling(found: State, scaling_now: bool) -> None:
    assert setsizes.is_scaling(found) is scaling_now
