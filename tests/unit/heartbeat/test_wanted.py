"""When the heartbeat is due, and what tells that the watchers are not well."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.rules import rule
from windowbox.models.objects import Object
from windowbox.settings.kindsettings import HeartbeatSettings
from workers.kinds.heartbeat import heartbeatlease

NOW = datetime(2026, 9, 1, 10, 15, 30, tzinfo=UTC)
SETTINGS = HeartbeatSettings(namespace="extension-provider-local-abcde")


def lease(renewed: str | None = None, version: str = "7", **spec: Any) -> Object:
    said = {"holderIdentity": "provider-local", "leaseDurationSeconds": 30, "renewTime": renewed} | spec
    return Object({"metadata": {"uid": "u", "resourceVersion": version}, "spec": said})


@rule("HB-1", "A.14")
def test_a_renewal_says_what_the_contract_shows() -> None:
    assert heartbeatlease.spec(SETTINGS, NOW) == {
        "holderIdentity": "provider-local",
        "leaseDurationSeconds": 30,
        "renewTime": "2026-09-01T10:15:30.000000Z",
    }


@pytest.mark.parametrize(
    ("found", "seconds"),
    [
        pytest.param(lease("2026-09-01T10:15:20.500000Z"), 20.5, id="HB-1-still-fresh"),
        pytest.param(lease("2026-09-01T10:15:00.000000Z"), 0.0, id="HB-1-due"),
        pytest.param(lease("2026-09-01T09:00:00.000000Z"), 0.0, id="HB-1-overdue"),
        pytest.param(lease("2026-09-01T10:15:50.000000Z"), 30.0, id="HB-1-renewed-by-a-clock-ahead"),
        pytest.param(lease("2026-09-01T11:00:00.000000Z"), 0.0, id="HB-2-renewed-by-a-clock-that-jumped"),
        pytest.param(lease(None), 0.0, id="never-renewed"),
        pytest.param(lease("soon"), 0.0, id="nonsense"),
        pytest.param(
            lease("2026-09-01T10:15:29.000000Z", holderIdentity="other"), 0.0, id="of-somebody-else"
        ),
        pytest.param(
            lease("2026-09-01T10:15:29.000000Z", leaseDurationSeconds=5), 0.0, id="of-another-interval"
        ),
    ],
)
def test_the_time_that_remains(found: Object, seconds: float) -> None:
    assert heartbeatlease.remaining(found, SETTINGS, NOW) == seconds


@pytest.mark.parametrize(
    ("seen", "live", "said"),
    [
        pytest.param(None, None, "", id="HB-2-the-first-beat"),
        pytest.param(lease(version="7"), lease(version="7"), "", id="HB-2-shown"),
        pytest.param(
            lease(version="7"), lease(version="8"), "watchers show version 7, the API has version 8",
            id="HB-2-not-shown",
        ),
        pytest.param(
            None, lease(version="8"), "watchers show no Lease at all, the API has version 8",
            id="HB-2-forgotten",
        ),
        pytest.param(lease(version="7"), None, "", id="deleted-by-somebody"),
    ],
)  # fmt: skip
def test_watchers_are_well_if_they_have_shown_the_last_renewal(
    seen: Object | None, live: Object | None, said: str
) -> None:
    assert heartbeatlease.stale(seen, live) == said


def test_a_renewal_alone_is_no_reason_for_a_look() -> None:
    assert not heartbeatlease.changed_by_others(
        lease("2026-09-01T10:15:00.000000Z"), lease("2026-09-01T10:15:30.000000Z")
    )
    assert heartbeatlease.changed_by_others(
        lease("2026-09-01T10:15:00.000000Z"), lease(None, holderIdentity="other")
    )
