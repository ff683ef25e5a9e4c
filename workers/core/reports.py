"""The last report about an object, read through the recorder."""

from __future__ import annotations

from typing import Any

from bus import intents, subjects
from bus.messages import StatusIntent
from bus.transport.connection import Bus
from windowbox.models.refs import ObjectRef
from workers.core.recorder import Recorder


async def last(bus: Bus, ref: ObjectRef, recorder: Recorder) -> tuple[StatusIntent | None, int]:
    """The last report about the object, and the sequence the next must expect."""

    async def act() -> dict[str, Any]:
        found = await intents.last(bus, subjects.key(ref))
        intent = found.intent.model_dump(mode="json") if found.intent else None
        return {"intent": intent, "sequence": found.sequence}

    answer = await recorder.call("reported", None, act)
    intent = answer["intent"]
    return (StatusIntent.model_validate(intent) if intent else None), int(answer["sequence"])


async def remind(bus: Bus, ref: ObjectRef, recorder: Recorder) -> None:
    """Have the last report about the object written, should that have been forgotten, or undone."""

    async def act() -> None:
        await intents.remind(bus, subjects.key(ref))

    await recorder.call("remind", None, act)
