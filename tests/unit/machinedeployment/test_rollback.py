"""The return to a former template."""

from __future__ import annotations

import pytest

from tests.support.machinefacts import deployment, machine_set, state
from tests.support.rules import rule
from windowbox.models import machinekeys as keys
from workers.machines.deployment import deploymentrequests
from workers.machines.deployment.deploymentstate import State


def asked(revision: int, *, sets: bool = True) -> State:
    old = machine_set("old-x", 0, metadata={"annotations": {keys.REVISION: "1", "a": "then"}})
    new = machine_set("new-set", 3, class_name="big", metadata={"annotations": {keys.REVISION: "2"}})
    body = deployment(spec={"rollbackTo": {"revision": revision}}, metadata={"annotations": {"b": "now"}})
    return state(body, *([old, new] if sets else []))


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        pytest.param(asked(0), "DeploymentRollback", id="C13-R2-before"),
        pytest.param(asked(1), "DeploymentRollback", id="C13-R2-number"),
        pytest.param(asked(2), "DeploymentRollbackTemplateUnchanged", id="C13-R2-same"),
        pytest.param(asked(7), "DeploymentRollbackRevisionNotFound", id="C13-R2-none"),
        pytest.param(asked(0, sets=False), "DeploymentRollbackRevisionNotFound", id="C13-R2-nothing-before"),
    ],
)
def test_rollback(found: State, reason: str) -> None:
    back = deploymentrequests.rollback(found)
    assert back
    assert back.reason == reason
    assert back.patch["spec"]["rollbackTo"] is None


@rule("C13-R2")
def test_template_and_annotations_come_back() -> None:
    back = deploymentrequests.rollback(asked(1))
    assert back
    assert back.patch["metadata"]["annotations"] == {"a": "then", "b": None}
    assert back.patch["spec"]["template"]["spec"]["class"] == {"kind": "MachineClass", "name": "small"}
    assert deploymentrequests.rollback(state(deployment())) is None
