"""Fields of a Worker's status besides its last operation."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support import workerexample as example
from tests.support.rules import rule
from tests.support.workerexample import pool, worker
from windowbox.models.extensions import TIMESTAMP
from windowbox.models.objects import Object
from workers.machines.worker import poolimages, workermanifests, workerstatus

NOW = datetime(2026, 8, 21, 10, 0, 4, 700000, tzinfo=UTC)
PROCESSING, SUCCEEDED = {"state": "Processing"}, {"state": "Succeeded"}
LISTED = [{"name": f"{example.TECHNICAL_ID}-small-z1", "minimum": 1, "maximum": 1}]


def asked(at: str | None, last: dict[str, Any], told: str | None, *, listed: bool = True) -> Object:
    status: dict[str, Any] = {"lastOperation": last}
    if told:
        status |= {"machineDeploymentsLastUpdateTime": told, "machineDeployments": LISTED if listed else []}
    return worker(pool(), status=status, annotations={TIMESTAMP: at} if at else {})


@pytest.mark.parametrize(
    ("found", "time"),
    [
        pytest.param(asked(None, {}, None), "2026-08-21T10:00:04Z", id="A4-R1-for-the-first-time"),
        pytest.param(
            asked("2026-08-21T10:00:04.5Z", SUCCEEDED, "2026-08-21T09:00:00Z"), "2026-08-21T10:00:05Z",
            id="A4-R1-a-new-request",
        ),
        pytest.param(
            asked("2026-08-21T10:00:03.5Z", PROCESSING, "2026-08-21T10:00:04Z"), None, id="A4-R1-told-already"
        ),
        pytest.param(
            asked("2026-08-21T10:00:04.5Z", PROCESSING, "2026-08-21T10:00:04Z"), "2026-08-21T10:00:05Z",
            id="A4-R1-a-new-request-within-the-same-second",
        ),
        pytest.param(
            asked(None, SUCCEEDED, "2026-08-21T10:00:04Z"), "2026-08-21T10:00:05Z",
            id="A4-R1-always-later-than-before",
        ),
        pytest.param(
            asked(None, PROCESSING, "2026-08-21T10:00:03Z", listed=False), "2026-08-21T10:00:04Z",
            id="A4-R1-others-than-before",
        ),
        pytest.param(
            asked("2999-08-21T10:00:04.5Z", PROCESSING, "2026-08-21T10:00:03Z"), "2026-08-21T10:00:04Z",
            id="a-clock-that-cannot-be-right",
        ),
    ],
)  # fmt: skip
def test_when_machine_deployments_are_reported(found: Object, time: str | None) -> None:
    told = workerstatus.machine_deployments(found, example.groups(found), NOW)
    expected = {"machineDeployments": LISTED, "machineDeploymentsLastUpdateTime": time} if time else {}
    assert told == expected


FAILED = {"state": "Error"}


@pytest.mark.parametrize(
    ("found", "answered"),
    [
        pytest.param(asked(None, PROCESSING, "2026-08-21T10:00:04Z"), True, id="goes-on"),
        pytest.param(asked(None, FAILED, "2026-08-21T10:00:04Z"), False, id="failed-and-no-time-is-sent"),
        pytest.param(
            asked("2026-08-21T10:00:03Z", FAILED, "2026-08-21T10:00:04Z"),
            True,
            id="failed-not-asked-again",
        ),
        pytest.param(
            asked("2026-08-21T10:00:05Z", FAILED, "2026-08-21T10:00:04Z"), False, id="failed-and-asked-again"
        ),
        pytest.param(asked(None, SUCCEEDED, "2026-08-21T10:00:04Z"), False, id="succeeded"),
        pytest.param(asked(None, {}, None), False, id="for-the-first-time"),
    ],
)
def test_when_user_data_is_read_again(found: Object, answered: bool) -> None:
    assert workerstatus.secrets_are_written(found) == answered


def test_a_failure_alone_gives_deployments_no_new_time() -> None:
    found = asked(None, FAILED, "2026-08-21T10:00:03Z")
    assert workerstatus.machine_deployments(found, example.groups(found), NOW) == {}


def test_a_worker_without_pools_reports_none() -> None:
    assert workerstatus.machine_deployments(worker(), [], NOW) == {}


@rule("AP1.1")
def test_the_status_of_the_example() -> None:
    [raw] = example.example("AP1.1")
    found = Object(raw)
    known = example.profile(("1.0.0", found.status["providerStatus"]["machineImages"][0]["image"]))
    groups = example.groups(found, known)
    fresh = Object({**raw, "status": {}})
    assert (
        workerstatus.machine_deployments(fresh, groups, NOW)["machineDeployments"]
        == found.status["machineDeployments"]
    )
    images = poolimages.provider_status((group.image for group in groups), example.parsed(known))
    assert images == found.status["providerStatus"]
    there = {one["metadata"]["name"]: Object(one) for one in example.example("AP1.4")}
    hashes = workerstatus.in_place_hashes(fresh, groups, there)
    assert hashes == {"inPlaceUpdates": found.status["inPlaceUpdates"]}
    assert workerstatus.in_place_hashes(found, groups, there) == {}


def in_place(strategy: str, before: dict[str, str], **status: int) -> dict[str, Any]:
    """The reported hashes of a pool `small` with in-place updates."""
    found = worker(pool(updateStrategy=strategy), status={"inPlaceUpdates": {"workerPoolToHashMap": before}})
    groups = example.groups(found)
    made = workermanifests.deployment(groups[0], example.site(found), 1)
    return workerstatus.in_place_hashes(found, groups, {groups[0].name: Object({**made, "status": status})})


PENDING, UPDATED = {"replicas": 2, "updatedReplicas": 1}, {"replicas": 2, "updatedReplicas": 2}
HASH = "158f7ddcc5c0a83f"


@pytest.mark.parametrize(
    ("strategy", "before", "status", "hashes"),
    [
        pytest.param("AutoInPlaceUpdate", {}, PENDING, {"small": HASH}, id="auto"),
        pytest.param("ManualInPlaceUpdate", {"small": "old"}, PENDING, "same", id="manual-pending"),
        pytest.param("ManualInPlaceUpdate", {"small": "old"}, UPDATED, {"small": HASH}, id="manual-updated"),
        pytest.param(
            "AutoInPlaceUpdate", {"gone": "x"}, {}, {"gone": None, "small": HASH}, id="a-pool-that-is-gone"
        ),
        pytest.param("AutoRollingUpdate", {"small": "old"}, {}, None, id="none-in-place-any-more"),
    ],
)  # fmt: skip
@rule("A14-R1", "A14-R2")
def test_hashes_of_pools_updated_in_place(
    strategy: str, before: dict[str, str], status: dict[str, int], hashes: Any
) -> None:
    told = in_place(strategy, before, **status)
    if hashes == "same":
        assert told == {}
    else:
        assert told == {"inPlaceUpdates": {"workerPoolToHashMap": hashes} if hashes else None}
