"""The status of a MachineDeployment."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.machinefacts import deployment, machine_set, state
from tests.support.rules import rule
from workers.machines.deployment import deploymentstatus
from workers.machines.deployment.deploymentstate import State
from workers.machines.deployment.deploymentstatus import Condition

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def counted(found: State) -> dict[str, Any]:
    return deploymentstatus.counts(found)


@rule("C8")
def test_counts_are_sums_of_the_sets() -> None:
    failed = {"name": "m", "lastOperation": {"description": "x"}}
    sets = [
        machine_set("old-x", 2, available=1, existing=3, status={"failedMachines": [failed]}),
        machine_set("new-set", 2, available=1, existing=1, class_name="big"),
    ]
    assert counted(state(deployment(3), *sets)) == {
        "observedGeneration": 1,
        "replicas": 4,
        "updatedReplicas": 1,
        "readyReplicas": 2,
        "availableReplicas": 2,
        "preservedFailedReplicas": 0,
        "unavailableReplicas": 2,
        "failedMachines": [failed],
    }


@pytest.mark.parametrize(
    ("available", "preserved", "wanted"),
    [
        pytest.param(2, 1, "True", id="C8+C12-R7-preserved"),
        pytest.param(2, 0, "False", id="C8-too-few"),
        pytest.param(3, 0, "True", id="C8-enough"),
    ],
)
def test_available(available: int, preserved: int, wanted: str) -> None:
    one = machine_set("new-set", 4, available=available, status={"preservedFailedReplicas": preserved})
    found = state(deployment(4, 0, 1), one)
    assert deploymentstatus.available(found, counted(found)).status == wanted


def said(
    reason: str, status_: str = "True", since: str = "2026-01-01T00:00:00Z", **numbers: int
) -> dict[str, Any]:
    condition = {"type": "Progressing", "status": status_, "reason": reason, "lastUpdateTime": since}
    return {"conditions": [condition], **numbers}


HALF = state(
    deployment(2, spec={"progressDeadlineSeconds": 60}),
    machine_set("new-set", 2, available=1, class_name="big"),
)
WHOLE = state(deployment(2), machine_set("new-set", 2, class_name="big"))
AS_BEFORE: dict[str, Any] = {"replicas": 2, "updatedReplicas": 2, "readyReplicas": 1, "availableReplicas": 1}


@pytest.mark.parametrize(
    ("found", "shown", "reason"),
    [
        pytest.param(WHOLE, said("MachineSetUpdated"), "NewMachineSetAvailable", id="C9-complete"),
        pytest.param(WHOLE, said("NewMachineSetAvailable", replicas=2), None, id="C9-stays-complete"),
        pytest.param(HALF, said("NewMachineSetCreated"), "MachineSetUpdated", id="C9-progress"),
        pytest.param(
            HALF, said("MachineSetUpdated", **AS_BEFORE), "ProgressDeadlineExceeded", id="C9-too-long"
        ),
        pytest.param(
            HALF, said("MachineSetUpdated", since="2026-01-01T23:59:30Z", **AS_BEFORE), None, id="C9-in-time"
        ),
        pytest.param(
            HALF,
            said("ProgressDeadlineExceeded", "False", **AS_BEFORE),
            "ProgressDeadlineExceeded",
            id="C9-still",
        ),
        pytest.param(HALF, AS_BEFORE, None, id="C9-unknown"),
    ],
)
def test_progressing(found: State, shown: dict[str, Any], reason: str | None) -> None:
    condition = deploymentstatus.progressing(found, counted(found), shown, NOW)
    assert (condition.reason if condition else None) == reason


@rule("C9-R2")
def test_the_transition_time_changes_with_the_status_only() -> None:
    shown = {"conditions": [{**said("NewMachineSetCreated")["conditions"][0], "lastTransitionTime": "then"}]}
    [same] = deploymentstatus.shown_with(shown, [Condition("Progressing", "True", "Other", "")], NOW)
    assert (same["lastTransitionTime"], same["lastUpdateTime"]) == ("then", "2026-01-02T00:00:00Z")
    [other] = deploymentstatus.shown_with(shown, [Condition("Progressing", "False", "Other", "")], NOW)
    assert other["lastTransitionTime"] == "2026-01-02T00:00:00Z"
    [as_it_was] = deploymentstatus.shown_with(
        shown, [Condition("Progressing", "True", "NewMachineSetCreated", "other words")], NOW
    )
    assert as_it_was == shown["conditions"][0]


@rule("C13-R1")
def test_a_pause_is_reported_once() -> None:
    paused = state(deployment(spec={"paused": True}))
    assert (found := deploymentstatus.paused(paused, said("MachineSetUpdated")))
    assert (found.status, found.reason) == ("Unknown", "DeploymentPaused")
    assert deploymentstatus.paused(paused, said("DeploymentPaused", "Unknown")) is None
    resumed = deploymentstatus.paused(state(deployment()), said("DeploymentPaused", "Unknown"))
    assert resumed
    assert resumed.reason == "DeploymentResumed"


@rule("C11-R4")
def test_a_frozen_set_shows_in_the_deployment() -> None:
    frozen = {"machineSetCondition": [{"type": "Frozen", "status": "True", "reason": "r", "message": "m"}]}
    found = state(deployment(), machine_set("new-set", 3, class_name="big", status=frozen))
    assert deploymentstatus.of_sets(found) == [Condition("Frozen", "True", "r", "m")]
