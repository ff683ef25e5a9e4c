"""Runs that wait for other controllers, and kinds that differ from most."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bus import intents, subjects
from bus.messages import Wish
from bus.outcomes import Outcome
from tests.api.lifecycle.stage import LONG_AGO, Stage, said
from tests.support.rules import rule
from windowbox.errors import Malformed, Refused, Unreachable, Waiting, WindowboxError
from windowbox.models.extensions import OPERATION, TIMESTAMP, spelled
from windowbox.models.refs import CLUSTERS, ObjectRef
from workers.core.lifecycle import lifecycle
from workers.core.lifecycle.actuators import Need
from workers.core.lifecycle.shootfacts import Blocked
from workers.dns.record.actuator import KIND


async def run(stage: Stage, ref: ObjectRef, reason: str = "event") -> Outcome:
    return await stage.outcome(ref, Wish(reason=reason))


async def last(stage: Stage, ref: ObjectRef) -> dict[str, Any]:
    """The last report about the object, with its sequence."""
    found = await intents.last(stage.bus, subjects.key(ref))
    return {"sequence": found.sequence, **(found.intent.patch if found.intent else {})}


def waited(description: str, since: str = LONG_AGO) -> dict[str, Any]:
    """The report of a run that waits."""
    patch = said("Create", "Processing")
    patch["lastOperation"] |= {"description": description, "lastUpdateTime": since}
    del patch["observedGeneration"]
    return patch


@rule("B.21", "B.23", "B-3")
async def test_a_wait_is_reported_once_and_is_no_error(stage: Stage) -> None:
    ref = await stage.record()
    stage.crew.error = Waiting("waiting for the tide")
    first = await run(stage, ref)
    assert (first.result, first.note) == ("waiting", "waiting for the tide")
    assert first.requeue
    assert first.requeue.after == 30
    reported = await last(stage, ref)
    operation = reported["lastOperation"]
    assert operation.pop("lastUpdateTime")
    assert operation == {
        "type": "Create",
        "state": "Processing",
        "progress": 50,
        "description": "Reconciling the DNSRecord: waiting for the tide",
    }
    assert reported["lastError"] is None
    assert (await run(stage, ref)).result == "waiting"
    assert (await last(stage, ref))["sequence"] == reported["sequence"]
    stage.crew.error = None
    assert (await run(stage, ref)).result == "succeeded"
    assert (await last(stage, ref))["lastOperation"]["state"] == "Succeeded"


DESCRIPTION = "Reconciling the DNSRecord: waiting for the tide"


@rule("B.21")
async def test_waiting_for_too_long_is_an_error_and_stays_one(stage: Stage) -> None:
    ref = await stage.record()
    await stage.report(ref, waited(DESCRIPTION))
    stage.crew.error = Waiting("waiting for the tide")
    outcome = await run(stage, ref)
    assert outcome.result == "failed"
    assert outcome.requeue
    assert outcome.requeue.after == 30
    failed = await last(stage, ref)
    text = "Error reconciling DNSRecord: waiting for the tide, for more than 180 s"
    assert failed["lastError"]["description"] == text
    assert failed["lastOperation"]["state"] == "Error"
    assert (await run(stage, ref, "retry")).result == "failed"
    assert (await last(stage, ref))["sequence"] == failed["sequence"]


@rule("B.21")
async def test_progress_restarts_the_wait(stage: Stage) -> None:
    ref = await stage.record()
    await stage.report(ref, waited(DESCRIPTION))
    stage.crew.error = Waiting("waiting for the moon")
    assert (await run(stage, ref)).result == "waiting"
    reported = await last(stage, ref)
    assert reported["lastOperation"]["description"] == "Reconciling the DNSRecord: waiting for the moon"


@rule("B.21")
async def test_a_changed_condition_does_not_restart_the_wait(stage: Stage) -> None:
    ref = await stage.record()
    begun = spelled(datetime.now(UTC) - timedelta(seconds=100))
    await stage.report(ref, waited(DESCRIPTION, begun))
    stage.crew.error = Waiting("waiting for the tide")
    stage.crew.error.status = {"conditions": [{"type": "EveryNodeReady", "message": "other words"}]}
    assert (await run(stage, ref)).result == "waiting"
    reported = await last(stage, ref)
    assert reported["conditions"] == [{"type": "EveryNodeReady", "message": "other words"}]
    assert reported["lastOperation"]["lastUpdateTime"] == begun


async def test_a_new_request_restarts_the_wait(stage: Stage) -> None:
    asked = {OPERATION: "reconcile", TIMESTAMP: "2026-02-01T00:00:00Z"}
    ref = await stage.record(annotations=asked)
    text = "Error reconciling DNSRecord: waiting for the tide, for more than 180 s"
    failed = said("Create", "Error") | {"lastError": {"description": text}}
    failed["lastOperation"]["description"] = text
    await stage.report(ref, failed)
    stage.crew.error = Waiting("waiting for the tide")
    assert (await run(stage, ref)).result == "waiting"
    assert (await last(stage, ref))["lastOperation"]["state"] == "Processing"


async def test_a_slow_run_still_waiting_reports_nothing_new(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = await stage.record()
    stage.crew.error = Waiting("waiting for the tide")
    await run(stage, ref)
    reported = await last(stage, ref)
    monkeypatch.setattr(lifecycle, "SLOW_SECONDS", 0)
    stage.crew.task = lambda: asyncio.sleep(0.05)  # slow: it is longer than SLOW_SECONDS
    assert (await run(stage, ref)).result == "waiting"
    assert (await last(stage, ref))["sequence"] == reported["sequence"]


@rule("U-1", "U-4")
async def test_a_slow_repeated_failure_does_not_stay_processing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = await stage.record()
    stage.crew.error = Refused("no")
    await run(stage, ref)
    monkeypatch.setattr(lifecycle, "SLOW_SECONDS", 0)
    stage.crew.task = lambda: asyncio.sleep(0.05)  # slow: it is longer than SLOW_SECONDS
    assert (await run(stage, ref)).result == "failed"
    assert (await last(stage, ref))["lastOperation"]["state"] == "Error"


@pytest.mark.parametrize(
    "error",
    [Refused("no"), Unreachable("away"), Malformed("what?")],
    ids=["refused", "away", "not-understood"],
)
async def test_a_failed_repair_is_retried_without_status_change(stage: Stage, error: WindowboxError) -> None:
    ref = await stage.record()
    await stage.report(ref, said("Create", "Succeeded"))
    before = await last(stage, ref)
    stage.crew.error = error
    outcome = await run(stage, ref, "drift")
    assert outcome.result == "failed"
    assert outcome.requeue
    assert (outcome.requeue.wish.reason, outcome.requeue.wish.attempt) == ("drift", 1)
    assert not outcome.requeue.wish.insist
    assert stage.crew.asked == ["reconcile"]
    assert await last(stage, ref) == before


async def test_a_repair_may_wait_too(stage: Stage) -> None:
    ref = await stage.record()
    await stage.report(ref, said("Create", "Succeeded"))
    before = await last(stage, ref)
    stage.crew.error = Waiting("waiting for the tide")
    outcome = await run(stage, ref, "drift")
    assert (outcome.result, outcome.note) == ("waiting", "waiting for the tide")
    assert outcome.requeue
    assert outcome.requeue.wish.reason == "drift"
    assert await last(stage, ref) == before


@rule("O-7")
@pytest.mark.parametrize("word", ["migrate", "restore"])
async def test_a_kind_without_migration_ignores_its_annotations(stage: Stage, word: str) -> None:
    stage.life.kind = dataclasses.replace(KIND, migrates=False)
    ref = await stage.record(annotations={OPERATION: word})
    assert (await run(stage, ref)).result == "succeeded"
    assert stage.crew.asked == ["reconcile"]
    assert (await last(stage, ref))["lastOperation"]["type"] == "Create"
    live = await stage.live(ref)
    assert live.annotations == {OPERATION: word}
    assert live.finalizers == (KIND.finalizer,)
    await stage.announced(ref)
    assert (await run(stage, ref)).result == "nothing to do"


@rule("O-7", "F-3")
async def test_a_kind_without_migration_is_deleted_despite_its_annotation(stage: Stage) -> None:
    stage.life.kind = dataclasses.replace(KIND, migrates=False)
    ref = await stage.record(annotations={OPERATION: "migrate"}, finalizers=[KIND.finalizer])
    await stage.api.delete(stage.life.kind.resource, ref.namespace, ref.name)
    await stage.announced(ref)
    assert (await run(stage, ref)).result == "succeeded"
    assert stage.crew.asked == ["delete"]


@rule("C-3")
async def test_a_kind_that_needs_its_shoot_waits_for_the_cluster(stage: Stage) -> None:
    stage.life.kind = dataclasses.replace(KIND, shoot=Need.REQUIRED)
    ref = await stage.record()
    outcome = await run(stage, ref)
    assert (outcome.result, outcome.note) == ("waiting", "its Cluster is not there yet")
    assert outcome.requeue
    assert stage.crew.asked == []
    assert (await last(stage, ref))["sequence"] == 0
    assert (await stage.live(ref)).finalizers == ()


@rule("T-9")
async def test_drift_during_a_failed_shoot_is_checked_again(stage: Stage) -> None:
    stage.life.kind = dataclasses.replace(KIND, shoot=Need.REQUIRED)
    ref = await stage.record()
    await stage.report(ref, said("Create", "Succeeded"))
    shoot = {"status": {"lastOperation": {"state": "Failed"}}}
    cluster = {
        "apiVersion": "extensions.gardener.cloud/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": ref.namespace},
        "spec": {"cloudProfile": {"a": 1}, "seed": {"a": 1}, "shoot": shoot},
    }
    await stage.api.create(CLUSTERS, "", cluster)
    try:
        asked, drifted = await run(stage, ref), await run(stage, ref, "drift")
    finally:
        await stage.api.delete(CLUSTERS, "", ref.namespace)
    assert (asked.note, asked.requeue) == (Blocked.FAILED, None)
    assert drifted.note == Blocked.FAILED
    assert drifted.requeue
    assert (drifted.requeue.wish.reason, drifted.requeue.wish.attempt) == ("drift", 1)
    assert stage.crew.asked == []
