"""Runs with errors, outages and concurrent changes, on a real bus and a real API server."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
from pathlib import Path
from typing import Any

import pytest

from bus import intents, streams, subjects
from bus.messages import Announcement, Reason, StatusIntent, Wish
from bus.transport import consumers
from bus.transport.connection import Bus
from bus.workqueue.pool import DeliveryHold, Item
from sandbox import processes
from tests.api.lifecycle.stage import LONG_AGO, Stage, said
from tests.support.rules import rule
from watchers import mirror
from windowbox.clients.kubernetes import kube
from windowbox.errors import Forbidden, Refused, Unreachable
from windowbox.models.extensions import OPERATION
from windowbox.models.objects import Object
from windowbox.models.refs import DNSRECORDS, ObjectRef
from workers.core.lifecycle import lifecycle
from workers.core.recorder_live import LiveRecorder
from workers.dns.record.actuator import KIND


async def test_the_bus_gets_the_finalizer_with_the_status(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube, "PASSING", 60.0)
    monkeypatch.setattr(mirror, "PASSING", 60.0)
    ref = await stage.record(annotations={OPERATION: "reconcile"})
    await stage.run(ref)
    ended = {**said("Create", "Succeeded")["lastOperation"], "description": "done", "progress": 100}
    status = {"status": {"lastOperation": ended}}
    await stage.api.merge(DNSRECORDS, ref.namespace, ref.name, status, part="status")
    await stage.announced(ref)
    history = consumers.snapshot(stage.bus, streams.OBJECTS, [subjects.seen(ref)], history=True)
    versions = [Announcement(stored).object() async for stored in history]
    assert [bool(one.finalizers) for one in versions] == [False, True]
    assert [OPERATION in one.annotations for one in versions] == [True, False]
    assert versions[1].last_operation["state"] == "Succeeded"


@rule("B-1", "V-9")
async def test_a_run_waits_while_the_api_is_away(stage: Stage, tmp_path: Path) -> None:
    ref = await stage.record()
    kubeconfig = tmp_path / "kubeconfig"
    nowhere = f"https://127.0.0.1:{processes.free_port()}"
    kubeconfig.write_text(_somewhere_else(nowhere))
    async with kube.from_file(kubeconfig) as away:
        stage.clusters.runtime = away
        outcome = await stage.outcome(ref, Wish(reason=Reason.EVENT, attempt=3))
    assert outcome.result == "waiting"
    assert outcome.requeue
    assert (outcome.requeue.wish.reason, outcome.requeue.wish.attempt) == ("retry", 4)
    assert stage.crew.asked == []


def _somewhere_else(url: str) -> str:
    return f"""
        clusters: [{{name: away, cluster: {{server: "{url}"}}}}]
        users: [{{name: me, user: {{}}}}]
        contexts: [{{name: away, context: {{cluster: away, user: me}}}}]
        current-context: away
        """


@rule("V-6", "W-7")
async def test_an_unwritten_report_is_requested_again(stage: Stage) -> None:
    ref = await stage.record()
    await stage.report(ref, said("Create", "Succeeded"))
    assert await stage.run(ref, reason="sweep") == "nothing to do"
    assert await stage.to_be_written(ref)
    assert stage.crew.asked == []


@rule("U-1", "W-7")
async def test_an_unwritten_failure_is_requested_again(stage: Stage) -> None:
    ref = await stage.record()
    error = {"description": "Error reconciling DNSRecord: no", "lastUpdateTime": LONG_AGO}
    await stage.report(ref, said("Create", "Error") | {"lastError": error})
    stage.crew.error = Refused("no")
    assert await stage.run(ref) == "failed"
    assert await stage.to_be_written(ref)


@rule("U-1", "U-4")
async def test_a_repeated_request_reports_the_same_failure_again(stage: Stage) -> None:
    ref = await stage.record()
    stage.crew.error = Refused("no")
    assert await stage.run(ref) == "failed"
    first = await intents.last(stage.bus, subjects.key(ref))
    assert first.intent
    # The report is written, then another program overwrites a part of it, which the bus does not show.
    changed = {**first.intent.patch, "lastError": {"description": "nonsense"}}
    await stage.api.merge(DNSRECORDS, ref.namespace, ref.name, {"status": changed}, part="status")
    asks = {"metadata": {"annotations": {"gardener.cloud/operation": "reconcile"}}}
    await stage.api.merge(DNSRECORDS, ref.namespace, ref.name, asks)
    assert await stage.run(ref) == "failed"
    again = await intents.last(stage.bus, subjects.key(ref))
    assert again.intent
    assert again.sequence > first.sequence
    assert again.intent.patch["lastError"]["description"] == "Error reconciling DNSRecord: no"


@rule("N-1", "V-7")
@pytest.mark.parametrize("reason", [Reason.DRIFT, Reason.LATE_REPORT, Reason.RETRY])
async def test_an_unrequested_run_leaves_a_request_to_the_next(stage: Stage, reason: Reason) -> None:
    asks = {"gardener.cloud/operation": "reconcile"}
    ref = await stage.record(annotations=asks)
    assert await stage.run(ref) == "succeeded"
    await stage.api.merge(DNSRECORDS, ref.namespace, ref.name, {"metadata": {"annotations": asks}})
    await stage.announced(ref)
    outcome = await stage.outcome(ref, Wish(reason=reason))
    # If the run were cut off after it had removed the annotation, the request would be lost.
    assert (await stage.live(ref)).annotations == asks
    assert outcome.requeue
    again = outcome.requeue.wish
    assert (again.reason, again.after_crash().insist, outcome.requeue.after) == (Reason.EVENT, True, 0)
    assert again.verify is Wish(reason=reason).verify
    assert (await stage.outcome(ref, again)).result == "succeeded"
    assert stage.crew.asked == ["reconcile"] * 2


@rule("U-4", "HC-9")
async def test_a_repair_leaves_the_last_operation_alone(stage: Stage) -> None:
    ref = await stage.record()
    stage.crew.status = {"zone": "not written yet"}
    assert await stage.run(ref) == "succeeded"
    first = (await intents.last(stage.bus, subjects.key(ref))).intent
    assert first
    stage.crew.status = {"resources": [{"name": "new"}]}
    assert await stage.run(ref, reason="drift") == "succeeded"
    second = (await intents.last(stage.bus, subjects.key(ref))).intent
    assert second
    assert first.patch["lastOperation"]["type"] == "Create"
    assert second.patch == {**first.patch, "resources": [{"name": "new"}]}


async def test_an_api_outage_does_not_count_towards_backoff(stage: Stage) -> None:
    ref = await stage.record()
    delays = []
    for error in (Forbidden("not allowed"), Refused("no")):
        stage.crew.error = error
        outcome = await stage.outcome(ref, Wish(reason=Reason.EVENT, attempt=8).insisting())
        assert outcome.requeue
        delays.append(outcome.requeue.after)
    assert delays[0] < 3
    assert delays[1] == 1000


@rule("U-4")
async def test_a_slow_run_reports_its_end_last(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    announced = asyncio.Event()
    report = intents.report

    async def hesitant(bus: Bus, key: str, intent: StatusIntent, expected: int) -> int:
        sequence = await report(bus, key, intent, expected)
        if not announced.is_set():
            announced.set()
            # The server has the report, but its answer is late: no event shows that the run has ended.
            await asyncio.sleep(0.1)
        return sequence

    monkeypatch.setattr(lifecycle, "SLOW_SECONDS", 0)
    monkeypatch.setattr(intents, "report", hesitant)
    ref = await stage.record()
    stage.crew.task = announced.wait  # type: ignore[assignment]
    assert await stage.run(ref) == "succeeded"
    reported = (await intents.last(stage.bus, subjects.key(ref))).intent
    assert reported
    assert reported.patch["lastOperation"]["state"] == "Succeeded"


async def test_a_failed_progress_report_leaves_no_exception_behind(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_behind: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: left_behind.append(context["message"]))
    refused = asyncio.Event()
    report = intents.report

    async def lost(bus: Bus, key: str, intent: StatusIntent, expected: int) -> int:
        if not refused.is_set():
            refused.set()
            raise Unreachable("the bus is away")
        return await report(bus, key, intent, expected)

    monkeypatch.setattr(lifecycle, "SLOW_SECONDS", 0)
    monkeypatch.setattr(intents, "report", lost)
    ref = await stage.record()
    stage.crew.task = refused.wait  # type: ignore[assignment]
    stage.crew.error = Refused("not like this")
    try:
        assert await stage.run(ref) == "failed"
        gc.collect()
    finally:
        loop.set_exception_handler(None)
    assert left_behind == []


@rule("V-4", "N-1", "O-6")
async def test_a_run_decides_on_live_api_state(stage: Stage) -> None:
    ref = await stage.record(annotations={"gardener.cloud/operation": "reconcile"})
    recorder = stage.recorder(ref)
    seen = await recorder.read(ref)
    assert seen
    await stage.api.merge(
        DNSRECORDS,
        ref.namespace,
        ref.name,
        {"metadata": {"annotations": {"gardener.cloud/operation": "migrate"}}},
    )

    class Behind(LiveRecorder):
        async def read(self, ref: ObjectRef) -> Object | None:
            return seen

    item = Item(subjects.key(ref), Wish(reason=Reason.EVENT), 1, 1, DeliveryHold(60))
    assert await stage.run(ref, Behind(stage.bus, stage.clusters, item)) == "succeeded"
    assert stage.crew.asked == ["migrate"]


@rule("V-1", "N-2")
async def test_a_run_of_a_former_object_leaves_its_successor_alone(stage: Stage) -> None:
    ref = await stage.record(
        annotations={"gardener.cloud/operation": "migrate"}, finalizers=["example.com/other"]
    )

    async def replaced() -> None:
        await stage.api.merge(DNSRECORDS, ref.namespace, ref.name, {"metadata": {"finalizers": None}})
        former = await stage.live(ref)
        await stage.api.delete(DNSRECORDS, ref.namespace, ref.name)
        body = {"name": ref.name, "finalizers": ["example.com/other"], "annotations": former.annotations}
        await stage.api.create(DNSRECORDS, ref.namespace, {**former.raw, "metadata": body})

    stage.crew.task = replaced
    assert await stage.run(ref) == "succeeded"
    successor = await stage.live(ref)
    assert successor.finalizers == ("example.com/other",)
    assert successor.annotations == {"gardener.cloud/operation": "migrate"}


@rule("N-2", "O-2", "O-4")
@pytest.mark.parametrize(("served", "asked"), [("migrate", "restore"), ("restore", "migrate")])
async def test_an_operation_requested_during_another_stays(stage: Stage, served: str, asked: str) -> None:
    ref = await stage.record(
        annotations={"gardener.cloud/operation": served}, finalizers=[KIND.finalizer, "example.com/other"]
    )

    async def change_of_mind() -> None:
        stage.crew.task = None
        wish = {"metadata": {"annotations": {"gardener.cloud/operation": asked}}}
        await stage.api.merge(DNSRECORDS, ref.namespace, ref.name, wish)
        await stage.announced(ref)

    stage.crew.task = change_of_mind
    assert await stage.run(ref) == "succeeded"
    assert (await stage.live(ref)).annotations == {"gardener.cloud/operation": asked}
    assert await stage.run(ref) == "succeeded"
    assert stage.crew.asked == [served, asked]


@rule("F-3", "V-7", "V-11")
async def test_a_deletion_can_be_done_twice(stage: Stage) -> None:
    ref = await stage.record(finalizers=[KIND.finalizer, "example.com/other"])
    await stage.api.delete(DNSRECORDS, ref.namespace, ref.name)
    await stage.announced(ref)

    class Breaking(LiveRecorder):
        async def call(self, door: str, *arguments: Any, **options: Any) -> Any:
            if door == "patch":
                raise Unreachable("the API is away")
            return await super().call(door, *arguments, **options)

    item = Item(subjects.key(ref), Wish(reason=Reason.EVENT), 1, 1, DeliveryHold(60))
    assert await stage.run(ref, Breaking(stage.bus, stage.clusters, item)) == "waiting"
    assert KIND.finalizer in (await stage.live(ref)).finalizers
    assert await stage.run(ref) == "succeeded"
    assert stage.crew.asked == ["delete", "delete"]
    assert (await stage.live(ref)).finalizers == ("example.com/other",)


@rule("B-6", "HC-4")
async def test_a_run_beyond_its_deadline_ends_with_an_error(stage: Stage) -> None:
    """Health checks are part of a run: one that does not end leaves the conditions as they are."""
    stage.life.kind = dataclasses.replace(KIND, deadline=0.05)
    stage.crew.task = asyncio.Event().wait  # type: ignore[assignment]
    healthy = {"type": "EveryNodeReady", "status": "True", "lastUpdateTime": LONG_AGO}
    ref = await stage.record()
    await stage.report(ref, {"conditions": [healthy]})
    assert await stage.run(ref) == "failed"
    reported = (await intents.last(stage.bus, subjects.key(ref))).intent
    assert reported
    assert "not finished within" in reported.patch["lastError"]["description"]
    assert reported.patch.get("conditions", [healthy]) == [healthy]
