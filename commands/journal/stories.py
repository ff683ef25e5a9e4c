"""The story of one object: all that the bus holds about it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from bus import intents, streams, subjects
from bus.messages import ReviewRecord, RunRecord, Wish
from bus.recordings import SeenObject
from bus.transport import consumers
from bus.transport.connection import ApiError, Bus, instant
from bus.workqueue.queue import Scheduled
from commands.journal import timeline
from commands.journal.timeline import Moment, Pending
from windowbox.kinds import POOLS
from windowbox.models.refs import ObjectRef


@dataclass(frozen=True)
class Story:
    """An object's versions, runs and reviews, and why it waits."""

    versions: list[SeenObject] = field(default_factory=list)
    runs: list[RunRecord] = field(default_factory=list)
    """By their start."""
    reviews: list[ReviewRecord] = field(default_factory=list)
    waiting: list[Moment] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.versions or self.runs or self.reviews or self.waiting)


async def read(bus: Bus, ref: ObjectRef, processes: Sequence[dict[str, Any]]) -> Story:
    """What the bus holds. `processes` are those that have described themselves."""
    key, pools = subjects.key(ref), (*POOLS, intents.PATCH)
    seen = consumers.snapshot(bus, streams.OBJECTS, [subjects.seen(ref)], history=True)
    versions = [SeenObject.of(stored) async for stored in seen]
    filters = [subjects.run(pool, key) for pool in pools]
    noted = consumers.snapshot(bus, streams.JOURNAL, filters, history=True)
    found = [RunRecord.model_validate_json(stored.data) async for stored in noted]
    runs = sorted(found, key=lambda run: run.started)
    asked = consumers.snapshot(bus, streams.REVIEWS, [subjects.review(key)], history=True)
    reviews = [ReviewRecord.model_validate_json(stored.data) async for stored in asked]
    pending = await asyncio.gather(*(_pending(bus, pool, key, processes) for pool in pools))
    reported = await intents.last(bus, key)
    now = datetime.now(UTC)
    patch = reported.intent.patch if reported.intent else {}
    waiting = [*timeline.waits(pending, runs, now), *timeline.unwritten(reported.sequence, patch, runs, now)]
    return Story(versions, runs, reviews, waiting)


async def _pending(bus: Bus, pool: str, key: str, processes: Sequence[dict[str, Any]]) -> Pending:
    wish = await bus.last(streams.TRIGGERS, subjects.wish(pool, key))
    item = await bus.last(streams.WORK, subjects.item(pool, key))
    later = [await bus.last(streams.LATER, of(pool, key)) for of in (subjects.due, subjects.later)]
    whereabouts: Literal["none", "waiting", "in hand"] = "waiting" if item else "none"
    if item:
        # Without a consumer, no worker has ever served the pool.
        with contextlib.suppress(ApiError):
            consumer = await bus.api(f"CONSUMER.INFO.{streams.WORK}.pool-{pool}")
            if item.sequence <= int(consumer["delivered"]["stream_seq"]):
                whereabouts = "in hand"
    return Pending(
        pool,
        Wish.model_validate_json(wish.data) if wish else None,
        datetime.fromtimestamp(instant(wish.time), UTC) if wish else None,
        whereabouts,
        sum(any(each["pool"] == pool for each in p.get("pools", ())) for p in processes),
        [Scheduled.of(stored) for stored in later if stored],
    )
