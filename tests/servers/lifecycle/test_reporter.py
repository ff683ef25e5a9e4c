"""Reports build on the former one: of another object of the name, or of a worker whose clock is ahead."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

from bus import intents, subjects
from bus.messages import Reason, StatusIntent, Wish
from bus.transport.connection import Bus
from bus.workqueue.pool import DeliveryHold, Item
from windowbox.models.extensions import overtaken
from windowbox.models.machines import OperationState, OperationType, Phase
from windowbox.models.objects import Object
from windowbox.models.refs import DNSRECORDS, MACHINES, RUNTIME, ObjectRef
from workers.core.lifecycle.reporting import Reporter
from workers.core.reconcile import Request
from workers.core.recorder_live import LiveRecorder
from workers.core.reports import Reports, with_report
from workers.machines.machine import machinestatus
from workers.machines.machine.machinestatus import MachineRun
from workers.machines.machine.phases import Change

REF = ObjectRef(RUNTIME, DNSRECORDS.id, "demo", "web")


async def test_a_successor_of_the_name_keeps_its_memo(bus: Bus) -> None:
    memo = {"places": ["web.local.gardener.cloud"]}
    await intents.report(bus, subjects.key(REF), StatusIntent(uid="new", patch={}, memo=memo), 0)
    item = Item(subjects.key(REF), Wish(reason=Reason.EVENT), 1, 1, DeliveryHold(60))
    reports = Reports(bus, REF, LiveRecorder(bus, cast(Any, None), item))
    await reports.last()
    reporter = Reporter(reports, Object({"metadata": {"uid": "old"}}))
    of_run = reporter.memo
    assert of_run == {}
    of_run["places"] = []
    reporter.take(Object({"metadata": {"uid": "new"}}))
    assert of_run == memo
    await reporter.remember()
    kept = (await intents.last(bus, subjects.key(REF))).intent
    assert kept
    assert kept.memo == memo


async def test_a_machine_is_running_after_a_report_of_a_worker_whose_clock_is_ahead(bus: Bus) -> None:
    """The patchers and the next run drop a report that is older than the status."""
    now, ref = datetime.now(UTC), REF._replace(kind=MACHINES.id)
    pending = Change(Phase.PENDING, OperationType.CREATE, OperationState.PROCESSING, "Creating")
    shown = machinestatus.changed(pending, now + timedelta(seconds=90))
    machine = Object({"metadata": {"name": "web", "uid": "u", "resourceVersion": "7"}, "status": shown})
    item = Item(subjects.key(ref), Wish(reason=Reason.EVENT), 1, 1, DeliveryHold(60))
    recorder = LiveRecorder(bus, cast(Any, None), item)
    reports = Reports(bus, ref, recorder)
    await reports.last()
    run = MachineRun(Request(ref, item.wish, recorder, reports), machine, now)
    running = Change(Phase.RUNNING, OperationType.CREATE, OperationState.SUCCESSFUL, "joined")
    await run.report_change(running)
    kept = (await intents.last(bus, subjects.key(ref))).intent
    assert kept
    assert not overtaken(kept.patch, shown)
    assert machinestatus.phase(with_report(machine, kept)) == machinestatus.phase(run.machine) == "Running"
    assert kept.patch["currentStatus"]["lastUpdateTime"] < shown["currentStatus"]["lastUpdateTime"]
