"""What the status of objects ought to be. The patchers write it; the next run builds on it."""

from __future__ import annotations

from typing import NamedTuple

from bus import streams, subjects
from bus.connection import Bus, WrongSequence
from bus.messages import Reason, StatusIntent, Wish
from bus.queue import Queue
from windowbox.errors import Superseded

PATCH = "patch"
"""The pool of those who write status."""


class Reported(NamedTuple):
    """The last report about an object, and the sequence that the next one must expect."""

    intent: StatusIntent | None
    sequence: int


async def last(bus: Bus, key: str) -> Reported:
    stored = await bus.last(streams.INTENTS, subjects.intent(key))
    if stored is None:
        return Reported(None, 0)
    return Reported(StatusIntent.model_validate_json(stored.data), stored.sequence)


async def report(bus: Bus, key: str, intent: StatusIntent, expected: int) -> int:
    """Have the status written, unless somebody else has reported since `expected`: then we are too late."""
    try:
        sequence = await bus.publish(subjects.intent(key), intent.encoded(), expect_last=expected)
    except WrongSequence as error:
        raise Superseded(f"{key}: another run has reported meanwhile") from error
    await remind(bus, key)
    return sequence or expected


async def remind(bus: Bus, key: str) -> None:
    """Have the last report written."""
    await Queue(bus, PATCH).wish(key, Wish(reason=Reason.REPORT))


async def forget(bus: Bus, key: str, uid: str) -> None:
    """Nobody needs the report about an object that is gone."""
    found = await last(bus, key)
    if found.intent and found.intent.uid == uid:
        await bus.delete(streams.INTENTS, found.sequence)
