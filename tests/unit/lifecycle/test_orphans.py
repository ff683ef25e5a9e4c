"""Which objects that are gone may have left something behind."""

from __future__ import annotations

from typing import Any

import pytest

from bus.messages import StatusIntent
from windowbox.models.objects import Object
from workers.core.lifecycle.orphancleanup import is_orphan

OURS = "extensions.gardener.cloud/infrastructure"
EARLIER, LATER = "2025-01-01T00:00:00Z", "2025-01-01T00:00:01Z"


def last(*finalizers: str, deleting: bool = False, reported: str = "") -> Object:
    metadata: dict[str, Any] = {"uid": "u", "finalizers": list(finalizers)}
    if deleting:
        metadata["deletionTimestamp"] = EARLIER
    status = {"lastOperation": {"type": "Create", "lastUpdateTime": reported}} if reported else {}
    return Object({"metadata": metadata, "status": status})


def report(type_: str = "Create", uid: str = "u", state: str = "Processing") -> StatusIntent:
    said = {"type": type_, "state": state, "lastUpdateTime": LATER}
    return StatusIntent(uid=uid, patch={"lastOperation": said})


@pytest.mark.parametrize(
    ("found", "reported", "orphan"),
    [
        pytest.param(last(OURS), None, True, id="removed-with-our-finalizer"),
        pytest.param(last(OURS, deleting=True), report(), False, id="after-a-delete-run"),
        pytest.param(last("other"), None, False, id="never-begun"),
        pytest.param(last(), report(), True, id="begun-while-nobody-watched"),
        pytest.param(last(), report("Restore"), True, id="restored-while-nobody-watched"),
        pytest.param(last(), report("Migrate"), False, id="handed-over"),
        pytest.param(last(OURS), report("Migrate", state="Succeeded"), False, id="handed-over-unseen"),
        pytest.param(last(OURS), report("Migrate"), True, id="not-handed-over-yet"),
        pytest.param(last(), report(uid="later"), False, id="report-about-another"),
        pytest.param(last(reported=EARLIER), report(), True, id="only-an-older-report-seen"),
        pytest.param(last(reported=LATER), report(), False, id="finalizer-taken-off-by-a-person"),
    ],
)
def test_orphans(found: Object, reported: StatusIntent | None, orphan: bool) -> None:
    assert is_orphan(found, OURS, reported) is orphan
