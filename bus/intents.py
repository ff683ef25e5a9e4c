"""Intents: the statuses that runs report. Patchers write them; the next run builds on them."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from bus import streams, subjects
from bus.messages import TRACE, Reason, StatusIntent, Wish
from bus.transport.connection import Bus, WrongSequence, instant
from bus.workqueue.queue import Depth, Queue
from windowbox.errors import Superseded
from windowbox.models.objects import Object
from windowbox.telemetry import tracing

PATCH = "patch"
"""The pool whose items are statuses to write."""
REPORTS = "reports"
"""The consumer of all reports: patchers write most of them as they come."""


class Reported(NamedTuple):
    """The last report about an object, and the sequence that the next one must expect."""

    intent: StatusIntent | None
    sequence: int


async def last(bus: Bus, key: str) -> Reported:
    stored = await bus.last(streams.INTENTS, subjects.intent(key))
    if stored is None or not stored.data:
        return Reported(None, stored.sequence if stored else 0)
    return Reported(StatusIntent.model_validate_json(stored.data), stored.sequence)


async def report(bus: Bus, key: str, intent: StatusIntent, expected: int) -> int:
    """Have the status written. Superseded if another run has reported since `expected`."""
    headers = {TRACE: tracing.for_message()}
    try:
        stored = await bus.publish(subjects.intent(key), intent.encoded(), headers, expect_last=expected)
        return stored or expected
    except WrongSequence as error:
        # The last report is forgotten with its object, perhaps before a run has reported the end of that.
        if expected and not intent.patch and (await last(bus, key)).sequence == 0:
            return await report(bus, key, intent, 0)
        raise Superseded(f"{key}: another run has reported meanwhile") from error


async def remind(bus: Bus, key: str) -> None:
    """Have the pool `patch` write the last report, if that is not written yet."""
    await Queue(bus, PATCH).wish(key, Wish(reason=Reason.REPORT))


async def depth(bus: Bus) -> Depth:
    """Reports that wait for a patcher or are being written as they come; those left to the pool are not."""
    info = await bus.api(f"CONSUMER.INFO.{streams.INTENTS}.{REPORTS}")
    waiting, in_hand, age = int(info["num_pending"]), int(info["num_ack_pending"]), 0.0
    since = int(info["ack_floor"]["stream_seq"]) + 1  # the stream keeps written reports
    if (waiting or in_hand) and (oldest := await bus.first(streams.INTENTS, subjects.intent(">"), since)):
        age = max(0.0, await bus.now() - instant(oldest.time))
    return Depth(waiting, in_hand, age)


async def is_newest(bus: Bus, key: str, sequence: int) -> bool:
    """Whether no report has come after the one with this sequence.

    Who has written a report asks afterwards: another process may have written a newer one just before.
    """
    stored = await bus.last(streams.INTENTS, subjects.intent(key))
    return stored is None or stored.sequence == sequence


async def forget(bus: Bus, key: str, uid: str) -> None:
    """Delete the report about an object that is gone."""
    found = await last(bus, key)
    if found.intent and found.intent.uid == uid and not found.intent.orphans:
        await bus.delete(streams.INTENTS, found.sequence)


async def keep_orphan(bus: Bus, key: str, orphan: Object) -> None:
    """Keep the last version of a deleted object until a run has removed its owned objects.

    A run that reports without having read this is superseded, as by any other report.
    """
    while True:
        found = await last(bus, key)
        intent = found.intent or StatusIntent(uid=orphan.uid, patch={})
        if any(Object(one).uid == orphan.uid for one in intent.orphans):
            return
        if intent.uid == orphan.uid:
            intent = StatusIntent(uid=orphan.uid, patch={}, orphans=intent.orphans, memo=intent.memo)
        kept = intent.model_copy(update={"orphans": (*intent.orphans, dict(orphan.raw))})
        with contextlib.suppress(WrongSequence):
            await bus.publish(subjects.intent(key), kept.encoded(), expect_last=found.sequence)
            return


async def forget_orphans(bus: Bus, key: str, intent: StatusIntent, expected: int) -> int:
    """Drop the orphans whose owned objects are removed. Returns the sequence that the next report expects."""
    if intent.patch or intent.events:
        return await report(bus, key, intent.model_copy(update={"orphans": ()}), expected)
    if not await bus.delete(streams.INTENTS, expected):
        raise Superseded(f"{key}: another run has reported meanwhile")
    return 0
