"""The health of objects, by their status."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.hostile import values
from tests.support.pages import record
from ui.health import BUSY, WELL, Health, health
from windowbox.models.objects import Object
from windowbox.models.refs import SERVICES, ObjectRef

WWW = record("www")
AT = "1970-01-01T00:01:40Z"
SERVICE = ObjectRef("runtime", SERVICES.id, "default", "web")


def condition(type: str, status: str) -> dict[str, Any]:
    return {"type": type, "status": status, "message": "why", "lastTransitionTime": AT}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param({}, WELL, id="nothing is said"),
        pytest.param({"status": {"lastOperation": {"state": "Succeeded"}}}, WELL, id="done"),
        pytest.param({"status": {"lastOperation": {"state": "Processing"}}}, BUSY, id="at work"),
        pytest.param(
            {"status": {"lastOperation": {"state": "Error", "description": "d", "lastUpdateTime": AT}}},
            Health("failed", "d", 100.0),
            id="failed",
        ),
        pytest.param(
            {"status": {"lastOperation": {"state": "Processing"}, "lastError": {"description": "e"}}},
            Health("failed", "e"),
            id="tried again after a failure",
        ),
        pytest.param(
            {"status": {"conditions": [condition("EveryNodeReady", "False")]}},
            Health("degraded", "EveryNodeReady is false: why", 100.0),
            id="a condition",
        ),
        pytest.param(
            {"status": {"conditions": [condition("MemoryPressure", "False")]}}, WELL, id="a good one"
        ),
        pytest.param(
            {"metadata": {"deletionTimestamp": AT, "finalizers": ["a/b"]}},
            Health("leaving", "its finalizers are still there: a/b", 100.0),
            id="being deleted",
        ),
    ],
)  # fmt: skip
def test_health(body: dict[str, Any], expected: Health) -> None:
    assert health(WWW, Object(body)) == expected


def test_a_service_that_is_no_load_balancer_is_not_ours() -> None:
    assert health(SERVICE, Object({"spec": {"type": "ClusterIP"}})) is None
    assert health(SERVICE, Object({"spec": {"type": "LoadBalancer"}})) == WELL


@pytest.mark.parametrize("text", values.TEXTS)
def test_hostile_texts_are_kept_as_texts(text: str) -> None:
    body = {"status": {"lastOperation": {"state": "Error", "description": text, "lastUpdateTime": text}}}
    found = health(WWW, Object(body))
    assert found is not None
    assert found.state == "failed"
    assert len(found.why) <= 500
