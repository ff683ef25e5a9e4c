"""MachineDeployments: their spec, the sizes of their sets, requests to them, and their status."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.cases import cases
from tests.support.machinefacts import deployment, machine, machine_set, sized, state
from tests.support.rules import rule
from windowbox.errors import Malformed
from windowbox.models import machinekeys as keys
from windowbox.models.objects import Object
from workers.machines import deployments
from workers.machines.deployment import deploymentrequests, deploymentstatus, setsizes
from workers.machines.deployment.deploymentstate import State
from workers.machines.deployment.deploymentstatus import Condition
from workers.machines.set import setplan


def test_an_invalid_deployment_can_be_deleted() -> None:
    invalid = Object({"metadata": {"name": "pool"}, "spec": {"replicas": "many", "strategy": {"type": "No"}}})
    with pytest.raises(Malformed):
        deployments.checked(invalid)
    assert deployments.lenient(invalid).replicas == 0


def test_more_machines_than_the_setting_allows_are_refused() -> None:
    """A typing error, or a stranger who may scale, must not fill a seed with machines."""
    assert deployments.checked(deployment(10, 2), 10).replicas == 10
    with pytest.raises(
        Malformed, match=r"replicas is 11: choose at most 10, .* setting machines\.max_replicas"
    ):
        deployments.checked(deployment(11, 2), 10)
    assert setplan.invalid(machine_set(replicas=10), 10) == ""
    assert "spec.replicas is 11" in setplan.invalid(machine_set(replicas=11), 10)


OLD, OLDER, NEW = "old-x", "old", "new-set"


def rolled(of: tuple[int, Any, Any], old: tuple[int, int], new: tuple[int, int], *, going: int = 0) -> State:
    """A deployment (replicas, surge, unavailable), its old and new set (replicas, available)."""
    sets = [
        machine_set(OLD, old[0], available=old[1], existing=old[0]),
        machine_set(NEW, new[0], available=new[1], existing=new[0], class_name="big"),
    ]
    return state(deployment(*of), *sets, terminating=[OLD] * going)


@cases(
    "found sizes",
    ("C5-grows-by-surge", rolled((3, 1, 0), (3, 3), (0, 0)), {NEW: 1}),
    ("C5-waits-for-the-new-one", rolled((3, 1, 0), (3, 3), (1, 0)), {}),
    ("C5-old-makes-way", rolled((3, 1, 0), (3, 3), (1, 1)), {OLD: 2}),
    ("C5-grows-again", rolled((3, 1, 0), (2, 2), (1, 1)), {NEW: 2}),
    ("C5-last-step", rolled((3, 1, 0), (1, 1), (3, 3)), {OLD: 0}),
    ("C5-done", rolled((3, 1, 0), (0, 0), (3, 3)), {}),
    ("C5-without-surge", rolled((3, 0, 1), (3, 3), (0, 0)), {OLD: 2}),
    ("C5-without-surge-replaces", rolled((3, 0, 1), (2, 2), (0, 0)), {NEW: 1}),
    ("C5-without-surge-waits", rolled((3, 0, 1), (2, 2), (1, 0)), {}),
    ("C5-both-zero", rolled((3, 0, 0), (3, 3), (0, 0)), {OLD: 2}),
    ("C5-percent", rolled((4, "25%", "25%"), (4, 4), (1, 0)), {OLD: 3}),
    ("C5-unavailable-old-first", rolled((3, 1, 0), (3, 1), (1, 1)), {OLD: 2}),
    ("C5-unavailable-old-within-limits", rolled((3, 1, 0), (3, 0), (1, 1)), {OLD: 2}),
    ("C5-new-too-large", rolled((3, 1, 0), (0, 0), (5, 5)), {NEW: 3}),
    ("C5-old-still-shrinks", rolled((3, 1, 0), (2, 3), (1, 1)), {NEW: 2}),
    ("C5-R1+L33-slow-deletion", rolled((3, 1, 0), (2, 2), (1, 1), going=1), {NEW: 2}),
)
def test_step(found: State, sizes: setsizes.Sizes) -> None:
    assert found.new
    assert setsizes.step(found, found.new) == sizes


@rule("C5")
def test_the_oldest_sets_shrink_first() -> None:
    sets = [machine_set(OLDER, 2), machine_set(OLD, 2), machine_set(NEW, 2, class_name="big")]
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


@cases(
    "surge unavailable wanted",
    ("C5-quarter-of-three", "25%", "25%", (1, 0)),
    ("C5-forced", 0, "10%", (0, 1)),
    ("C5-no-more-than-all", "100%", 7, (3, 3)),
)
def test_fenceposts(surge: Any, unavailable: Any, wanted: tuple[int, int]) -> None:
    found = deployments.checked(deployment(3, surge, unavailable))
    assert (found.surge, found.unavailable) == wanted


def scaled(to: int, old: int, new: int, *, before: int, **spec: Any) -> State:
    """A deployment whose replicas change from `before` to `to`."""
    size = sized(before, before + 1)
    sets = [machine_set(OLD, old, metadata=size), machine_set(NEW, new, class_name="big", metadata=size)]
    return state(deployment(to, spec=spec), *sets)


@cases(
    "found sizes",
    ("C6-R2-up", scaled(5, 0, 3, before=3), {NEW: 5}),
    ("C6-R2-down", scaled(1, 0, 3, before=3), {NEW: 1}),
    ("C6-R2-only-the-old-one-is-active", scaled(5, 3, 0, before=3), {OLD: 5}),
    ("C6-R3-saturated", scaled(3, 2, 3, before=3), {OLD: 0}),
    ("C6-R4-up-goes-to-the-new-one", scaled(10, 4, 2, before=5), {OLD: 4, NEW: 7}),
    ("C6-R4-down-in-proportion", scaled(5, 8, 3, before=10), {OLD: 4, NEW: 2}),
    ("C6-R4-to-nothing", scaled(0, 4, 2, before=5), {OLD: 0, NEW: 0}),
    ("C6-R4-recreate", scaled(5, 4, 2, before=6, strategy={"type": "Recreate"}), {}),
)
def test_sizes(found: State, sizes: setsizes.Sizes) -> None:
    assert setsizes.scaled(found) == sizes


@cases(
    "found scaling_now",
    ("C6-R1-other-number", scaled(5, 0, 3, before=3), True),
    ("C6-R1-same-number", scaled(3, 0, 3, before=3), False),
    ("C6-R1-from-nothing", scaled(3, 0, 0, before=3), True),
    ("C6-R1-no-new-set", state(deployment(3), machine_set(OLD, 2, metadata=sized(9, 9))), False),
    ("C6-R1-not-noted", state(deployment(3), machine_set(NEW, 3, class_name="big")), False),
)
def test_is_scaling(found: State, scaling_now: bool) -> None:
    assert setsizes.is_scaling(found) is scaling_now


NOW = datetime(2026, 1, 2, tzinfo=UTC)
THEN = "2026-01-01T00:00:00Z"
MACHINES = [machine("a"), machine("b"), machine("f", "Failed"), machine("t", deleting=True)]


def asked(text: str, scaled: str = "") -> Object:
    annotations = {keys.TRIGGER_DELETION: text} | ({keys.SCALER_TIME: scaled} if scaled else {})
    return deployment(metadata={"annotations": annotations})


@cases(
    "text scaled annotation marked",
    ("C6-R7-one", f"a~{THEN}", THEN, f"a~{THEN}", {"a": THEN}),
    ("C6-R7-pruned", f"a~{THEN},f~{THEN},t~{THEN},gone~{THEN}", THEN, f"a~{THEN}", {"a": THEN}),
    ("C6-R7-malformed", f"a~{THEN}~x,b~nonsense", THEN, None, {}),
    ("C6-R7-old-format", "a,b", THEN, f"a~{THEN},b~{THEN}", {"a": THEN, "b": THEN}),
    ("C6-R7-since-now", "a", "", "a~2026-01-02T00:00:00Z", {"a": "2026-01-02T00:00:00Z"}),
)
def test_chosen(text: str, scaled: str, annotation: str | None, marked: dict[str, str]) -> None:
    found = deploymentrequests.chosen(asked(text, scaled), MACHINES, NOW)
    assert found
    assert found.annotation == annotation
    assert {one.name: since for one, since in found.marks} == marked


@rule("C6-R6", "C6-R7")
def test_a_machine_is_marked_once() -> None:
    assert deploymentrequests.chosen(deployment(), MACHINES, NOW) is None
    mark = {keys.PRIORITY: "1", keys.MARKED_FOR_DELETION: THEN}
    found = deploymentrequests.chosen(asked(f"a~{THEN}"), [machine("a", annotations=mark)], NOW)
    assert found == deploymentrequests.Chosen(f"a~{THEN}")


def rolled_back(revision: int, *, sets: bool = True) -> State:
    old = machine_set("old-x", 0, metadata={"annotations": {keys.REVISION: "1", "a": "then"}})
    new = machine_set("new-set", 3, class_name="big", metadata={"annotations": {keys.REVISION: "2"}})
    body = deployment(spec={"rollbackTo": {"revision": revision}}, metadata={"annotations": {"b": "now"}})
    return state(body, *([old, new] if sets else []))


@cases(
    "found reason",
    ("C13-R2-before", rolled_back(0), "DeploymentRollback"),
    ("C13-R2-number", rolled_back(1), "DeploymentRollback"),
    ("C13-R2-same", rolled_back(2), "DeploymentRollbackTemplateUnchanged"),
    ("C13-R2-none", rolled_back(7), "DeploymentRollbackRevisionNotFound"),
    ("C13-R2-nothing-before", rolled_back(0, sets=False), "DeploymentRollbackRevisionNotFound"),
)
def test_rollback(found: State, reason: str) -> None:
    back = deploymentrequests.rollback(found)
    assert back
    assert back.reason == reason
    assert back.patch["spec"]["rollbackTo"] is None


@rule("C13-R2")
def test_a_rollback_restores_template_and_annotations() -> None:
    back = deploymentrequests.rollback(rolled_back(1))
    assert back
    assert back.patch["metadata"]["annotations"] == {"a": "then", "b": None}
    assert back.patch["spec"]["template"]["spec"]["class"] == {"kind": "MachineClass", "name": "small"}
    assert deploymentrequests.rollback(state(deployment())) is None


@rule("C8")
def test_counts_are_sums_of_the_sets() -> None:
    failed = {"name": "m", "lastOperation": {"description": "x"}}
    sets = [
        machine_set("old-x", 2, available=1, existing=3, status={"failedMachines": [failed]}),
        machine_set("new-set", 2, available=1, existing=1, class_name="big"),
    ]
    assert deploymentstatus.counts(state(deployment(3), *sets)) == {
        "observedGeneration": 1,
        "replicas": 4,
        "updatedReplicas": 1,
        "readyReplicas": 2,
        "availableReplicas": 2,
        "preservedFailedReplicas": 0,
        "unavailableReplicas": 2,
        "failedMachines": [failed],
    }


@cases(
    "available preserved wanted",
    ("C8+C12-R7-preserved", 2, 1, "True"),
    ("C8-too-few", 2, 0, "False"),
    ("C8-enough", 3, 0, "True"),
)
def test_available(available: int, preserved: int, wanted: str) -> None:
    one = machine_set("new-set", 4, available=available, status={"preservedFailedReplicas": preserved})
    found = state(deployment(4, 0, 1), one)
    assert deploymentstatus.available(found, deploymentstatus.counts(found)).status == wanted


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


@cases(
    "found shown reason",
    ("C9-complete", WHOLE, said("MachineSetUpdated"), "NewMachineSetAvailable"),
    ("C9-stays-complete", WHOLE, said("NewMachineSetAvailable", replicas=2), None),
    ("C9-progress", HALF, said("NewMachineSetCreated"), "MachineSetUpdated"),
    ("C9-too-long", HALF, said("MachineSetUpdated", **AS_BEFORE), "ProgressDeadlineExceeded"),
    ("C9-in-time", HALF, said("MachineSetUpdated", since="2026-01-01T23:59:30Z", **AS_BEFORE), None),
    ("C9-still", HALF, said("ProgressDeadlineExceeded", "False", **AS_BEFORE), "ProgressDeadlineExceeded"),
    ("C9-unknown", HALF, AS_BEFORE, None),
)
def test_progressing(found: State, shown: dict[str, Any], reason: str | None) -> None:
    condition = deploymentstatus.progressing(found, deploymentstatus.counts(found), shown, NOW)
    assert (condition.reason if condition else None) == reason


@rule("C9-R2")
def test_the_transition_time_changes_with_the_status_only() -> None:
    shown = {"conditions": [{**said("NewMachineSetCreated")["conditions"][0], "lastTransitionTime": "then"}]}
    [same] = deploymentstatus.shown_with(shown, [Condition("Progressing", "True", "Other", "")], NOW)
    assert (same["lastTransitionTime"], same["lastUpdateTime"]) == ("then", "2026-01-02T00:00:00Z")
    [other] = deploymentstatus.shown_with(shown, [Condition("Progressing", "False", "Other", "")], NOW)
    assert other["lastTransitionTime"] == "2026-01-02T00:00:00Z"
    reworded = Condition("Progressing", "True", "NewMachineSetCreated", "other words")
    assert deploymentstatus.shown_with(shown, [reworded], NOW) == shown["conditions"]


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
