"""The chain of a Shoot: which link waits for which, and which one blocks."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

from sandbox.shoots import chain
from sandbox.shoots.chain import Link, Observed, State
from tests.support.cases import cases

NOW = datetime(2026, 9, 1, 10, 0, tzinfo=UTC)
LONG_AGO = "2026-09-01T09:58:00Z"
A_MOMENT_AGO = "2026-09-01T09:59:30Z"


def extension(kind: str, state: str = "Succeeded", description: str = "", at: str = LONG_AGO) -> Any:
    operation = {"state": state, "description": description, "lastUpdateTime": at}
    return {
        "kind": kind,
        "metadata": {"name": "one", "generation": 1, "creationTimestamp": LONG_AGO},
        "status": {"observedGeneration": 1, "lastOperation": operation},
    }


def observed(**changed: Any) -> Observed:
    kinds = ("Infrastructure", "ControlPlane", "OperatingSystemConfig", "Worker")
    extensions = {kind: extension(kind) for kind in kinds} | changed.pop("extensions", {})
    whole = Observed(
        technical_id="shoot--local--one",
        began=NOW - timedelta(seconds=120),
        server=Link("API server", State.DONE, "https://127.0.0.1:1"),
        extensions=extensions,
        managed=[],
        membership={"asleep": False, "watches": {"services": "watching"}},
        machines=[],
        nodes=[],
        records=[],
        services=[],
        webhooks=[],
    )
    return dataclasses.replace(whole, **changed)


MACHINE = {
    "metadata": {"name": "m1", "creationTimestamp": LONG_AGO},
    "status": {
        "currentStatus": {"phase": "Pending"},
        "lastOperation": {"description": "its Pod boots", "lastUpdateTime": LONG_AGO},
    },
}
WEBHOOKS = {
    "metadata": {"name": "extension-controlplane-shoot-webhooks", "creationTimestamp": LONG_AGO},
    "status": {"conditions": [{"type": "ResourcesApplied", "status": "False", "message": "refused"}]},
}
BEHIND = extension("ControlPlane", "Processing", "waiting for its webhooks")
FAILED = extension("ControlPlane", "Error", "Error reconciling ControlPlane: no config")
WAITING = extension("Worker", "Processing", "Waiting for 1 machine")


def workers(worker: Any, **more: Any) -> Observed:
    return observed(extensions={"Worker": worker}, **more)


@cases(
    "found name",
    ("all-done", observed(), None),
    ("failed", observed(extensions={"ControlPlane": FAILED}), "ControlPlane"),
    ("not-for-long-enough", workers(extension("Worker", "Processing", "", A_MOMENT_AGO)), None),
    ("the-machine-before-its-worker", workers(WAITING, machines=[MACHINE]), "machine m1"),
    ("the-cluster-before-the-machine", workers(WAITING, machines=[MACHINE], membership=None), "takes part"),
    (
        "the-webhooks-before-their-control-plane",
        observed(extensions={"ControlPlane": BEHIND}, managed=[WEBHOOKS]),
        "ManagedResource extension-controlplane-shoot-webhooks",
    ),
    ("no-webhooks-yet", observed(extensions={"ControlPlane": BEHIND}), "ControlPlane"),
    ("hibernated", observed(membership={"asleep": True}), None),
    ("nothing-in-a-hibernated-shoot", observed(membership={"asleep": True}, managed=[WEBHOOKS]), None),
)
def test_the_first_link_without_open_needs_blocks(found: Observed, name: str | None) -> None:
    blocking = chain.blocker(chain.chain(found), NOW)
    assert (blocking.name if blocking else None) == name


def test_the_picture_shows_waits_and_next_step() -> None:
    found = workers(WAITING, machines=[MACHINE], membership=None)
    lines = chain.picture(chain.chain(found), NOW)
    text = "\n".join(lines)
    assert "✓ Infrastructure" in text
    assert "… machine m1" in text
    assert "(waits for takes part)" in text
    assert lines[-2:] == [
        "Blocked for 120 s by takes part: its cluster has not joined",
        "Next: windowbox clusters list",
    ]


def test_objects_corrected_by_a_person_are_requeued() -> None:
    wrong = extension("ControlPlane", "Error", "spec.providerConfig of the CloudProfile is missing: add one")
    wrong["status"]["lastError"] = {"codes": ["ERR_CONFIGURATION_PROBLEM"]}
    lines = chain.picture(chain.chain(observed(extensions={"ControlPlane": wrong})), NOW)
    assert lines[-1] == (
        "Next: correct that, then kubectl -n shoot--local--one annotate controlplane one "
        "gardener.cloud/operation=reconcile"
    )


def test_missing_objects_are_recreated_with_their_shoot() -> None:
    lines = chain.picture(chain.chain(observed(extensions={"Worker": None})), NOW)
    assert lines[-1] == "Next: windowbox shoot delete one, then windowbox shoot create one"
