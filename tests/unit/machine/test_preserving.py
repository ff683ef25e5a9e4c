"""Whether a Machine is preserved, as a table of its annotations and its node's."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.machine.samples import NOW, ago, node, spelled
from windowbox.models.objects import Object
from workers.machines.machine import preserving

KEY = "node.machine.sapcloud.io/preserve"
LAST = "node.machine.sapcloud.io/last-applied-node-preserve-value"
LATER, EARLIER = "2026-08-22T10:00:00Z", spelled(ago(1))


def machine(own: str = "", *, phase: str = "Running", last: str = "", expiry: str = "") -> Object:
    annotations = {name: value for name, value in ((KEY, own), (LAST, last)) if value}
    current: dict[str, Any] = {"phase": phase} | ({"preserveExpiryTime": expiry} if expiry else {})
    return Object(
        {"metadata": {"name": "a", "annotations": annotations}, "status": {"currentStatus": current}}
    )


def said(value: str = "") -> Object:
    return node(Ready="True", metadata={"annotations": {KEY: value} if value else {}})


@pytest.mark.parametrize(
    ("found", "its_node", "preserved"),
    [
        pytest.param(machine("now"), said(), True, id="C12+now"),
        pytest.param(machine("now"), None, True, id="C12-R1+node-missing"),
        pytest.param(machine("when-failed"), said(), False, id="C12+not-failed"),
        pytest.param(machine("when-failed", phase="Failed"), said(), True, id="C12+failed"),
        pytest.param(machine("now"), said("false"), False, id="C12-R1+node-first"),
        pytest.param(machine("now", last="now"), said(), False, id="C12-R1+node-takes-it-back"),
        pytest.param(machine("sometimes"), said(), False, id="C12-R1+nonsense"),
        pytest.param(machine(expiry=LATER), said("sometimes"), True, id="C12-R1+nonsense-on-node"),
        pytest.param(machine("now", expiry=EARLIER), said(), False, id="C12-R4+expired"),
        pytest.param(machine("auto-preserved", expiry=LATER), said(), False, id="C12-R4+recovered"),
        pytest.param(machine("when-failed", expiry=LATER), said(), True, id="C12-R4+recovered-by-a-user"),
        pytest.param(machine("auto-preserved", phase="Failed"), said(), True, id="C12+auto"),
    ],
)
def test_annotations_decide(found: Object, its_node: Object | None, preserved: bool) -> None:
    assert preserving.decide(found, its_node, NOW).preserved is preserved
