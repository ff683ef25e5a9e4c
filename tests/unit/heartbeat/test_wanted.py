"""When the heartbeat is due, and when watchers count as unhealthy."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.cases import cases
from tests.support.rules import rule
from windowbox.clients.kubernetes import bulkhead
from windowbox.models.objects import Object
from windowbox.settings.kindsettings import HeartbeatSettings
from workers.kinds.heartbeat import heartbeatpool

NOW = datetime(2026, 9, 1, 10, 15, 30, tzinfo=UTC)
SETTINGS = HeartbeatSettings(namespace="extension-provider-local-abcde")


def lease(renewed: str | None = None, version: str = "7", **spec: Any) -> Object:
    said = {"holderIdentity": "provider-local", "leaseDurationSeconds": 30, "renewTime": renewed} | spec
    return Object({"metadata": {"uid": "u", "resourceVersion": version}, "spec": said})


@rule("HB-1", "A.14")
def test_a_renewal_writes_the_spec_of_the_contract() -> None:
    assert heartbeatpool.spec(SETTINGS, NOW) == {
        "holderIdentity": "provider-local",
        "leaseDurationSeconds": 30,
        "renewTime": "2026-09-01T10:15:30.000000Z",
    }


@cases(
    "found, seconds",
    {
        "HB-1-still-fresh": (lease("2026-09-01T10:15:20.500000Z"), 20.5),
        "HB-1-due": (lease("2026-09-01T10:15:00.000000Z"), 0.0),
        "HB-1-overdue": (lease("2026-09-01T09:00:00.000000Z"), 0.0),
        "HB-1-renewed-by-a-clock-ahead": (lease("2026-09-01T10:15:50.000000Z"), 30.0),
        "HB-2-renewed-by-a-clock-that-jumped": (lease("2026-09-01T11:00:00.000000Z"), 0.0),
        "never-renewed": (lease(None), 0.0),
        "nonsense": (lease("soon"), 0.0),
        "of-somebody-else": (lease("2026-09-01T10:15:29.000000Z", holderIdentity="other"), 0.0),
        "of-another-interval": (lease("2026-09-01T10:15:29.000000Z", leaseDurationSeconds=5), 0.0),
    },
)
def test_the_time_that_remains(found: Object, seconds: float) -> None:
    assert heartbeatpool.remaining(found, SETTINGS, NOW) == seconds


@pytest.mark.parametrize("interval", [1, 10, 30, 120])
def test_two_slow_runs_in_a_row_do_not_make_a_pool_look_stuck(interval: int) -> None:
    given = heartbeatpool.patience(HeartbeatSettings(interval=interval))
    assert given >= 4 * interval
    assert given - 2 * bulkhead.BUDGET >= 60


@cases("seen, live, said", {"HB-2-the-first-beat": (None, None, ""),
"HB-2-shown": (lease(version="7"), lease(version="7"), ""),
"HB-2-not-shown": (lease(version="7"), lease(version="8"), "watchers show version 7, the API has version 8"),
"HB-2-forgotten": (None, lease(version="8"), "watchers show no Lease at all, the API has version 8"),
"deleted-by-somebody": (lease(version="7"), None, ""),})  # fmt: skip
def test_watchers_are_healthy_if_they_show_the_last_renewal(
    seen: Object | None, live: Object | None, said: str
) -> None:
    assert heartbeatpool.stale(seen, live) == said


def test_a_renewal_alone_requeues_nothing() -> None:
    assert not heartbeatpool.changed_by_others(
        lease("2026-09-01T10:15:00.000000Z"), lease("2026-09-01T10:15:30.000000Z")
    )
    assert heartbeatpool.changed_by_others(
        lease("2026-09-01T10:15:00.000000Z"), lease(None, holderIdentity="other")
    )
