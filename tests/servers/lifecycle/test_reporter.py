"""The reporter of a run that finds another object under the name."""

from __future__ import annotations

from typing import Any, cast

from bus import intents, subjects
from bus.messages import Reason, StatusIntent, Wish
from bus.transport.connection import Bus
from bus.workqueue.pool import DeliveryHold, Item
from windowbox.models.objects import Object
from windowbox.models.refs import DNSRECORDS, RUNTIME, ObjectRef
from workers.core.lifecycle.reporting import Reporter
from workers.core.recorder_live import LiveRecorder
from workers.core.reports import Reports

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
