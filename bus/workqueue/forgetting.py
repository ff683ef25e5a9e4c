"""Forgets what the bus holds about an object when the object is gone: its scheduled wish, and its report."""

from __future__ import annotations

import logging

from pydantic import ValidationError

from bus import streams, subjects
from bus.messages import OPERATION, StatusIntent
from bus.transport import buckets
from bus.transport.connection import Bus
from bus.workqueue.queue import Queue

logger = logging.getLogger(__name__)

_MOST = 2000
"""Reports that one sweep forgets at most."""


async def forget(bus: Bus, queue: Queue, key: str, uid: str) -> None:
    """Forget a deleted object. A run for it, if there is one, needs none of that.

    Events that are not written yet stay: the patchers write them, and delete their message then.
    """
    # Deletions may be delivered late: the wish of another object of this name is not forgotten.
    scheduled = await queue.scheduled(key)
    if scheduled and await _is_gone(bus, key):
        await bus.delete(streams.LATER, scheduled)
    report, sequence = await _report(bus, key)
    if report and report.uid == uid and (report.patch or not report.events):
        await bus.delete(streams.INTENTS, sequence)


class ReportSweep:
    """Forgets the reports about objects of one kind that were deleted while nobody looked.

    Two sweeps have to find no object: watchers may be about to announce again what the bus has lost.
    """

    def __init__(self, bus: Bus, kind: str) -> None:
        self._bus = bus
        self._kind = kind
        self._suspects: set[str] | None = None

    def restart(self) -> None:
        """Look at all reports again: the bus may be another one."""
        self._suspects = None

    async def step(self) -> None:
        """Look once at the reports, until none is left that may have to be forgotten."""
        before = self._suspects
        if before is None:
            self._suspects = await self._unseen()
        elif before:
            unseen = sorted(before & await self._unseen())
            for key in unseen[:_MOST]:
                await self._forget(key)
            self._suspects = set(unseen[_MOST:])

    async def _unseen(self) -> set[str]:
        """The keys of reports about objects of which the bus shows not even a deletion."""
        reports = await self._bus.subjects(streams.INTENTS, subjects.reports_on(self._kind))
        if not reports:
            return set()
        objects = await self._bus.subjects(streams.OBJECTS, subjects.seen_kind("*", self._kind))
        keys = {subjects.without("intent", report) for report in reports}
        return keys - {subjects.without("object", object) for object in objects}

    async def _forget(self, key: str) -> None:
        ref = subjects.ref(key)
        report, sequence = await _report(self._bus, key)
        if listed := await self._bus.last(streams.OBJECTS, subjects.listed(ref.cluster, ref.kind)):
            gone = listed.headers.get(OPERATION) != "DELETED"
        else:  # its cluster has left, or the bus has lost what it knew
            entry = subjects.entry(streams.CLUSTERS, subjects.of_cluster(ref.cluster))
            member = await self._bus.last(f"KV_{streams.CLUSTERS}", entry)
            gone = member is not None and buckets.gone(member)
        if report and gone and await self._bus.last(streams.OBJECTS, subjects.seen(ref)) is None:
            await self._bus.delete(streams.INTENTS, sequence)


async def _is_gone(bus: Bus, key: str) -> bool:
    last = await bus.last(streams.OBJECTS, subjects.seen(subjects.ref(key)))
    return last is None or last.headers.get(OPERATION) == "DELETED"


async def _report(bus: Bus, key: str) -> tuple[StatusIntent | None, int]:
    """The report, unless owned objects have to be removed first, for which it is kept; and its sequence."""
    stored = await bus.last(streams.INTENTS, subjects.intent(key))
    if stored is None or not stored.data:
        return None, 0
    try:
        report = StatusIntent.model_validate_json(stored.data)
    except ValidationError as error:
        logger.error("%s: its report cannot be read: %s", key, error)
        return None, stored.sequence
    return (None if report.orphans else report), stored.sequence
