"""Machines that the cluster autoscaler has chosen."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.support.machinefacts import deployment, machine
from tests.support.rules import rule
from windowbox.models import machinekeys as keys
from windowbox.models.objects import Object
from workers.machines.deployment import deploymentrequests

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
def test_nobody_is_chosen_without_annotation() -> None:
    assert deploymentrequests.chosen(deployment(), MACHINES, NOW) is None


@rule("C6-R7")
def test_a_machine_is_marked_once() -> None:
    mark = {keys.PRIORITY: "1", keys.MARKED_FOR_DELETION: THEN}
    found = deploymentrequests.chosen(asked(f"a~{THEN}"), [machine("a", annotations=mark)], NOW)
    assert found == deploymentrequests.Chosen(f"a~{THEN}")
