"""Reports about one object: the last one, and the next, which is refused if another run reported first."""

from __future__ import annotations

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
        self.sequence = 0
        """The sequence that the next report has to expect."""

    async def last(self) -> StatusIntent | None:
        """The last report. The next one expects that no other run reports in between."""

        async def read() -> dict[str, Any]:
            found = await intents.last(self._bus, self._key)
            intent = found.intent.model_dump(mode="json") if found.intent else None
            return {"intent": intent, "sequence": found.sequence}

        answer = await self._recorder.call("reported", None, read)
        self.sequence = int(answer["sequence"])
        return StatusIntent.model_validate(answer["intent"]) if answer["intent"] else None

    async def send(self, intent: StatusIntent) -> None:
        """Have the patchers write this status and these Events."""

        async def publish() -> None:
            self.sequence = await intents.report(self._bus, self._key, intent, self.sequence)

        # A replay compares the report without what depends on the state of the cluster.
        unstable = {"version", "shown", "conditions"}
        request = intent.model_dump(mode="json", exclude=unstable, exclude_defaults=True)
        await self._recorder.call("report", request, publish, effect=True)

    async def send_event(self, uid: str, event: EventIntent) -> None:
        """Have the patchers write an Event, and leave the status."""
        await self.send(StatusIntent(uid=uid, patch={}, events=(event,)))

    async def remind(self) -> None:
        """Have the last report written, should that have been forgotten, or undone."""
        await self._recorder.call("remind", None, intents.remind, self._bus, self._key)

    async def forget(self, uid: str) -> None:
        """Remove the last report, if it is about the object with this uid."""
        await self._recorder.call("forget", uid, intents.forget, self._bus, self._key, uid)


def with_report(found: Object, reported: StatusIntent | None) -> Object:
    """The object with the status of its last report, which may not be written yet."""
    if reported is None or reported.uid != found.uid or overtaken(reported.patch, found.status):
        return found
    return Object({**found.raw, "status": merge(found.status, reported.patch_of(found.status))})
