"""Which Workers hand their machines over."""

from __future__ import annotations

import pytest

from windowbox.models.objects import Object
from workers.machines.moving import is_leaving, moves


@pytest.mark.parametrize(
    ("operation", "type_", "state", "leaves", "moving"),
    [
        pytest.param("migrate", "Reconcile", "Succeeded", True, True, id="A15-R6-asked-for"),
        pytest.param(None, "Migrate", "Succeeded", True, True, id="A15-R6-done"),
        pytest.param("wait-for-state", None, None, False, True, id="A15-R4-awaits-its-state"),
        pytest.param(None, "Restore", "Processing", False, True, id="A15-R4-arrives"),
        pytest.param(None, "Restore", "Succeeded", False, False, id="A15-R5-has-arrived"),
        pytest.param("reconcile", "Reconcile", "Error", False, False, id="stays"),
    ],
)
def test_machines_stay_while_their_worker_is_handed_over(
    operation: str | None, type_: str | None, state: str | None, leaves: bool, moving: bool
) -> None:
    last = {"type": type_, "state": state} if type_ else {}
    annotations = {"gardener.cloud/operation": operation} if operation else {}
    worker = Object(
        {"metadata": {"name": "w", "annotations": annotations}, "status": {"lastOperation": last}}
    )
    assert is_leaving(worker) is leaves
    assert moves(operation, last) is moving
