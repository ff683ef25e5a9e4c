"""Records that somebody else wants to be different, and never tires of changing back."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

from windowbox.models.objects import Object
from windowbox.models.refs import ObjectRef
from workers.ingress import wanted
from workers.ingress.plans import Action, Await, Correct, LeaveAlone, Make, Remove
from workers.lifecycle.conflictbackoff import ConflictBackoff
from workers.recorder import Recorder


class Contention:
    """How long to leave records alone that had to be put right again and again, lately and here.

    A record is counted as long as its Ingress asks for the same: whoever changes that never waits.
    """

    def __init__(self) -> None:
        self._patience = ConflictBackoff()

    async def left(
        self, ref: ObjectRef, ingress: Object, actions: Iterable[Action], recorder: Recorder
    ) -> Mapping[str, float]:
        """Seconds until these are to be done again, by record. Those that can be done now are not named."""
        names = [name for action in actions if (name := touched(action))]

        async def look() -> dict[str, float]:
            left = {name: self._patience.left(_key(ref, ingress, name)) for name in names}
            return {name: seconds for name, seconds in left.items() if seconds}

        found: Mapping[str, float] = await recorder.call("patience", None, look) or {}
        return found

    def repaired(self, ref: ObjectRef, ingress: Object, actions: Sequence[Action]) -> None:
        for action in actions:
            if name := touched(action):
                self._patience.repaired(_key(ref, ingress, name))


def touched(action: Action) -> str:
    """The record that an action writes; empty where it writes none."""
    match action:
        case Make(record) | Correct(record):
            return str(record["metadata"]["name"])
        case Remove(record):
            return record.name
        case Await() | LeaveAlone():
            return ""


def _key(ref: ObjectRef, ingress: Object, record: str) -> Hashable:
    return ref, ingress.uid, ingress.generation, tuple(wanted.targets(ingress)), record
