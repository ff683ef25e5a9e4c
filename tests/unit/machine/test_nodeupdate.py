"""Nodes that are updated in place: the condition that follows from their labels, and their drain."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.rules import rule
from tests.unit.machine.samples import NOW, TIMEOUTS, ago, machine, spelled
from windowbox.models import machinekeys as keys
from windowbox.models.machines import Phase
from windowbox.models.objects import Object
from workers.machines.machine import nodeupdate, phases
from workers.machines.machine.phases import MachineState

CANDIDATE, SELECTED = {keys.CANDIDATE: "true"}, {keys.CANDIDATE: "true", keys.SELECTED: "true"}
SUCCESSFUL = {**SELECTED, keys.UPDATE_RESULT: "successful"}
FAILED = {**SELECTED, keys.UPDATE_RESULT: "failed"}


def node(labels: dict[str, str], reason: str = "", seconds: float = 0.0, **conditions: str) -> Object:
    said: list[dict[str, Any]] = [{"type": k, "status": v} for k, v in conditions.items()]
    if reason:
        at = spelled(ago(seconds))
        said.append({"type": "InPlaceUpdate", "status": "True", "reason": reason, "lastTransitionTime": at})
    return Object({"metadata": {"name": "machine-a", "labels": labels}, "status": {"conditions": said}})


@pytest.mark.parametrize(
    ("labels", "reason", "wanted"),
    [
        pytest.param({}, "", "", id="no-candidate"),
        pytest.param({keys.SELECTED: "true"}, "", "", id="selected-but-no-candidate"),
        pytest.param(CANDIDATE, "", "CandidateForUpdate", id="a-candidate"),
        pytest.param(CANDIDATE, "CandidateForUpdate", "", id="waits-to-be-selected"),
        pytest.param(SELECTED, "", "CandidateForUpdate", id="selected-at-once"),
        pytest.param(SELECTED, "CandidateForUpdate", "SelectedForUpdate", id="selected"),
        pytest.param(SELECTED, "SelectedForUpdate", "", id="is-emptied"),
        pytest.param(SUCCESSFUL, "SelectedForUpdate", "", id="no-result-counts-before-it-is-empty"),
        pytest.param(SELECTED, "DrainSuccessful", "ReadyForUpdate", id="empty"),
        pytest.param(SELECTED, "ReadyForUpdate", "", id="is-updated"),
        pytest.param(SUCCESSFUL, "ReadyForUpdate", "UpdateSuccessful", id="updated"),
        pytest.param(SUCCESSFUL, "UpdateSuccessful", "", id="said-already"),
        pytest.param(FAILED, "ReadyForUpdate", "UpdateFailed", id="failed"),
        pytest.param(FAILED, "UpdateFailed", "", id="failure-said-already"),
        pytest.param(SUCCESSFUL, "UpdateFailed", "UpdateSuccessful", id="put-right"),
        pytest.param(CANDIDATE, "UpdateSuccessful", "CandidateForUpdate", id="the-next-update"),
    ],
)
@rule("C10")
def test_the_condition_follows_the_labels(labels: dict[str, str], reason: str, wanted: str) -> None:
    assert nodeupdate.next_reason(node(labels, reason)) == wanted


@pytest.mark.parametrize(
    ("label", "seconds", "forced"),
    [
        pytest.param({}, 60, False, id="normal"),
        pytest.param({}, 7201, True, id="since-it-was-selected"),
        pytest.param({keys.FORCE_DRAIN: "True"}, 60, True, id="label"),
        pytest.param({keys.FORCE_DRAIN: "true"}, 60, False, id="label-of-another-value"),
        pytest.param({keys.FORCE_DELETION: "True"}, 60, False, id="label-of-deletions"),
    ],
)
@rule("C10-R2")
def test_when_a_drain_for_an_update_is_forced(label: dict[str, str], seconds: float, forced: bool) -> None:
    found = node(SELECTED, "SelectedForUpdate", seconds, Ready="True")
    labelled = Object({**machine().raw, "metadata": {**machine().metadata, "labels": label}})
    mode = nodeupdate.mode(labelled, found, TIMEOUTS, NOW)
    assert (mode.forced, mode.machine_too) == (forced, False)


@pytest.mark.parametrize(
    ("phase", "labels", "seconds", "after"),
    [
        pytest.param(Phase.IN_PLACE_UPDATING, SELECTED, 60, None, id="waits"),
        pytest.param(Phase.IN_PLACE_UPDATING, SELECTED, 1201, Phase.IN_PLACE_UPDATE_FAILED, id="too-late"),
        pytest.param(
            Phase.IN_PLACE_UPDATING, SUCCESSFUL, 60, Phase.IN_PLACE_UPDATE_SUCCESSFUL, id="successful"
        ),
        pytest.param(Phase.IN_PLACE_UPDATING, FAILED, 60, Phase.IN_PLACE_UPDATE_FAILED, id="failed"),
        pytest.param(Phase.IN_PLACE_UPDATE_FAILED, FAILED, 60, None, id="failed-before"),
        pytest.param(
            Phase.IN_PLACE_UPDATE_FAILED, SUCCESSFUL, 60, Phase.IN_PLACE_UPDATE_SUCCESSFUL, id="put-right"
        ),
        pytest.param(Phase.IN_PLACE_UPDATE_FAILED, FAILED, 601, Phase.FAILED, id="failed-for-too-long"),
        pytest.param(Phase.IN_PLACE_UPDATE_SUCCESSFUL, SUCCESSFUL, 60, Phase.RUNNING, id="runs-again"),
    ],
)
@rule("C10", "B9-R4")
def test_phases_of_an_update(
    phase: Phase, labels: dict[str, str], seconds: float, after: Phase | None
) -> None:
    state = MachineState("a", phase, ago(9999), ago(seconds))
    change = phases.verdict(state, node(labels, Ready="True"), TIMEOUTS, NOW).change
    assert (change.phase if change else None) == after
