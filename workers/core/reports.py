"""Reports about one object: the last one, and the next, which is refused if another run reported first."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from bus import intents, subjects
from bus.messages import EventIntent, StatusIntent
from bus.transport.connection import Bus
from windowbox.models.extensions import overtaken
from windowbox.models.objects import Object, merge
from windowbox.models.refs import ObjectRef
from workers.core.recorder import Recorder


class Reports:
    """The reports about one object, sent and read through the recorder of one run."""

    def __init__(self, bus: Bus, ref: ObjectRef, recorder: Recorder) -> None:
        self._bus = bus
        self._key = subjects.key(ref)
        self._recorder = recorder
        self._sending = asyncio.Lock()
        self._sequence = 0
        """The sequence that the next report has to expect."""
        self.latest: StatusIntent | None = None
        """The last report, this run's or a former one's; perhaps about a former object of the name."""

    async def last(self) -> StatusIntent | None:
        """The last report. The next one expects that no other run reports in between."""

        async def read() -> dict[str, Any]:
            found = await intents.last(self._bus, self._key)
            intent = found.intent.model_dump(mode="json") if found.intent else None
            return {"intent": intent, "sequence": found.sequence}

        answer = await self._recorder.call("reported", None, read)
        self._sequence = int(answer["sequence"])
        self.latest = StatusIntent.model_validate(answer["intent"]) if answer["intent"] else None
        return self.latest

    async def send(
        self, intent: StatusIntent, *, memo: Mapping[str, Any] | None = None, effect: bool = True
    ) -> None:
        """Have the patchers write this status and these Events. `memo`, unrecorded, replaces the intent's."""

        async def publish() -> None:
            async with self._sending:
                sent = intent if memo is None else intent.model_copy(update={"memo": dict(memo)})
                self._sequence = await intents.report(self._bus, self._key, sent, self._sequence)
                self.latest = sent

        # A replay compares the report without what depends on the state of the cluster.
        unstable = {"version", "shown", "conditions"}
        request = intent.model_dump(mode="json", exclude=unstable, exclude_defaults=True)
        await self._recorder.call("report", request, publish, effect=effect)

    async def send_event(self, uid: str, event: EventIntent) -> None:
        """Have the patchers write an Event, and leave the status."""
        await self.send(StatusIntent(uid=uid, patch={}, events=(event,)))

    async def remember(self, uid: str, memo: Mapping[str, Any]) -> None:
        """Store the memo now, with the last report about the object unchanged. Without one, nothing."""

        async def keep() -> None:
            async with self._sending:
                if self.latest and self.latest.uid == uid:
                    kept = self.latest.model_copy(update={"memo": dict(memo)})
                    self._sequence = await intents.report(self._bus, self._key, kept, self._sequence)
                    self.latest = kept

        async def keep_to_the_end() -> None:
            # Never cancelled: after a report that was cut off, the next expected sequence is unknown.
            keeping = asyncio.create_task(keep(), name=f"memo {self._key}")
            try:
                await asyncio.shield(keeping)
            except asyncio.CancelledError:
                await asyncio.wait([keeping])
                if not keeping.cancelled():
                    keeping.exception()
                raise

        await self._recorder.call("remember", memo, keep_to_the_end)

    async def remind(self) -> None:
        """Have the last report written, should that have been forgotten, or undone."""
        await self._recorder.call("remind", None, intents.remind, self._bus, self._key)

    async def forget(self, uid: str) -> None:
        """Remove the last report, if it is about the object with this uid."""
        await self._recorder.call("forget", uid, intents.forget, self._bus, self._key, uid)

    async def keep_orphan(self, orphan: Object) -> None:
        """Keep the object until a run has removed its owned objects. The next report is then refused."""
        await intents.keep_orphan(self._bus, self._key, orphan)

    async def forget_orphans(self) -> None:
        """Drop the orphans of the last report: their owned objects are removed."""
        if self.latest:
            asked = (self._bus, self._key, self.latest, self._sequence)
            self._sequence = int(
                await self._recorder.call("forget orphans", None, intents.forget_orphans, *asked)
            )
            self.latest = self.latest.model_copy(update={"orphans": ()})


def with_report(found: Object, reported: StatusIntent | None) -> Object:
    """The object with the status of its last report, which may not be written yet."""
    if reported is None or reported.uid != found.uid or overtaken(reported.patch, found.status):
        return found
    return Object({**found.raw, "status": merge(found.status, reported.patch_of(found.status))})
