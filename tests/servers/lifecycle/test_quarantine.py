"""The report of a quarantine builds on the last report, as every other report does."""

from __future__ import annotations

from typing import Any, cast

import orjson

from bus import intents, subjects
from bus.messages import OPERATION, UID, VERSION, EventIntent, Reason, StatusIntent, Wish
from bus.outcomes import Done, Outcome
from bus.transport.connection import Bus
from bus.workqueue.pool import DeliveryHold, Item
from tests.support.cases import cases
from windowbox.models.objects import Object
from windowbox.models.refs import DNSRECORDS, RUNTIME, ObjectRef
from workers.core.reconcile import ReconcileHandler, Request

REF = ObjectRef(RUNTIME, DNSRECORDS.id, "demo", "web")
KEY = subjects.key(REF)
STATUS = {"observedGeneration": 2, "zone": {"id": "1", "name": "local"}, "ttl": 60}


class Showing:
    """Reports the time to live that it is shown, beside the quarantine."""

    def __init__(self) -> None:
        self.shown: dict[str, Any] = {}

    async def reconcile(self, request: Request) -> Outcome:
        return Done()

    async def quarantine_patch(self, request: Request, found: Object, event: EventIntent) -> dict[str, Any]:
        self.shown = dict(found.status)
        return {"lastOperation": {"state": "Error"}}


@cases(
    "reported shown patch",
    (
        "merged-deeply",
        {"observedGeneration": 2, "zone": {"id": "2"}, "ttl": None},
        {"observedGeneration": 2, "zone": {"id": "2", "name": "local"}},
        {"observedGeneration": 2, "zone": {"id": "2"}, "ttl": None},
    ),
    ("overtaken-by-a-newer-status", {"observedGeneration": 1, "ttl": 30}, STATUS, {}),
    ("never-reported", None, STATUS, {}),
)
async def test_a_quarantine_keeps_unwritten_reports(
    bus: Bus, reported: dict[str, Any] | None, shown: dict[str, Any], patch: dict[str, Any]
) -> None:
    object = {"metadata": {"name": "web", "uid": "u", "resourceVersion": "7"}, "status": STATUS}
    headers = {OPERATION: "ADDED", UID: "u", VERSION: "7"}
    await bus.publish(subjects.seen(REF), orjson.dumps(object), headers)
    if reported is not None:
        await intents.report(bus, KEY, StatusIntent(uid="u", patch=reported, memo={"step": 3}), 0)
    reconciler = Showing()
    item = Item(KEY, Wish(reason=Reason.EVENT), 1, 3, DeliveryHold(60))
    await ReconcileHandler(bus, cast(Any, None), reconciler).quarantine(item)
    intent = (await intents.last(bus, KEY)).intent
    assert intent is not None
    assert reconciler.shown == shown
    assert intent.patch == patch | {"lastOperation": {"state": "Error"}}
    assert intent.memo == ({"step": 3} if reported else {})
    assert [event.reason for event in intent.events] == ["SetAside"]
