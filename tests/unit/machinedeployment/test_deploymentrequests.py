"""Requests to a MachineDeployment: machines that the autoscaler has chosen, and rollbacks."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.support.machinefacts import deployment, machine, machine_set, state
from tests.support.rules import rule
from windowbox.models import machinekeys as keys
from windowbox.models.objects import Object
from workers.machines.deployment import deploymentrequests
from workers.machines.deployment.deploymentstate import State

NOW = datetime(2026, 1, 2, tzinfo=UTC)
THEN = "2026-01-01T00:00:00Z"
MACHINES = [machine("a"), machine("b"), machine("f", "Failed"), machine("t", deleting=True)]


def asked(text: str, scaled: str = "") -> Object:
    annotations = {keys.TRIGGER_DELETION: text} | ({keys.SCALER_TIME: scaled} if scaled else {})
    return deployment(metadata={"annotations": annotations})


@pytest.mark.parametrize(
    ("text", "scaled", "annotation", "marked"),
    [
        pytest.param(f"a~{THEN}", THEN, f"a~{THEN}", {"a": THEN}, id="C6-R7-one"),
        pytest.param(
            f"a~{THEN},f~{THEN},t~{THEN},gone~{THEN}", THEN, f"a~{THEN}", {"a": THEN}, id="C6-R7-pruned"
        ),
        pytest.param(f"a~{THEN}~x,b~nonsense", THEN, None, {}, id="C6-R7-malformed"),
        pytest.param("a,b", THEN, f"a~{THEN},b~{THEN}", {"a": THEN, "b": THEN}, id="C6-R7-old-format"),
        pytest.param("a", "", "a~2026-01-02T00:00:00Z", {"a": "2026-01-02T00:00:00Z"}, id="C6-R7-since-now"),
    ],
)
def test_chosen(text: str, scaled: str, annotation: str | None, marked: dict[str, str]) -> None:
    found = deploymentrequests.chosen(asked(text, scaled), MACHINES, NOW)
    assert found
    assert found.annotation == annotation
    assert {one.name: since for one, since in found.marks} == marked


@rule("C6-R6")
def test_no_machine_is_chosen_without_annotation() -> None:
    assert deploymentrequests.chosen(deployment(), MACHINES, NOW) is None


@rule("C6-R7")
def test_a_machine_is_marked_once() -> None:
    mark = {keys.PRIORITY: "1", keys.MARKED_FOR_DELETION: THEN}
    found = deploymentrequests.chosen(asked(f"a~{THEN}"), [machine("a", annotations=mark)], NOW)
    assert found == deploymentrequests.Chosen(f"a~{THEN}")


def rolled_back(revision: int, *, sets: bool = True) -> State:
    old = machine_set("old-x", 0, metadata={"annotations": {keys.REVISION: "1", "a": "then"}})
    new = machine_set("new-set", 3, class_name="big", metadata={"annotations": {keys.REVISION: "2"}})
    body = deployment(spec={"rollbackTo": {"revision": revision}}, metadata={"annotations": {"b": "now"}})
    return state(body, *([old, new] if sets else []))


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        pytest.param(rolled_back(0), "DeploymentRollback", id="C13-R2-before"),
        pytest.param(rolled_back(1), "DeploymentRollback", id="C13-R2-number"),
        pytest.param(rolled_back(2), "DeploymentRollbackTemplateUnchanged", id="C13-R2-same"),
        pytest.param(rolled_back(7), "DeploymentRollbackRevisionNotFound", id="C13-R2-none"),
        pytest.param(
            rolled_back(0, sets=False), "DeploymentRollbackRevisionNotFound", id="C13-R2-nothing-before"
        ),
    ],
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
