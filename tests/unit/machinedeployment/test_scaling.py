"""How a MachineDeployment that is scaled sizes its sets."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.machinefacts import deployment, machine_set, sized, state
from workers.machines.deployment import setsizes
from workers.machines.deployment.deploymentstate import State
from workers.machines.deployment.setsizes import Sizes

OLD, NEW = "old-x", "new-set"


IN_PLACE = {"type": "InPlaceUpdate", "inPlaceUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
RECREATE = {"type": "Recreate"}


def scaled(
    to: int, old: int, new: int, *, before: int, surge: int = 1, strategy: dict[str, Any] | None = None
) -> State:
    """A deployment that has had `before` machines and is to have `to`."""
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
def test_sizes(found: State, sizes: Sizes) -> None:
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
def test_scaling_is_noticed(found: State, scaling_now: bool) -> None:
    assert setsizes.is_scaling(found) is scaling_now
