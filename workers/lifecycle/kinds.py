"""What a kind brings to the life cycle that all extension kinds share."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from windowbox.models.objects import Object
from windowbox.models.refs import ObjectRef, Resource
from workers.doors import Doors
from workers.lifecycle.clusters import ShootFacts
from workers.lifecycle.operations import Flow
from workers.lifecycle.statuses import Words

Status = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """A kind of extension object."""

    resource: Resource
    pool: str
    finalizer: str
    words: Words
    classes: frozenset[str]
    """Those it can serve; which it does serve is a setting."""
    deadline: float
    """Seconds for one run."""


@dataclass(frozen=True)
class Run:
    """What an actuator is given."""

    ref: ObjectRef
    object: Object
    shoot: ShootFacts | None
    """None outside shoot namespaces."""
    doors: Doors


class Actuator(Protocol):
    """Makes the world what one object asks for. Everything here is safe to repeat.

    `reconcile` and `restore` return what they have to add to the status.
    """

    async def reconcile(self, run: Run) -> Status: ...

    async def restore(self, run: Run) -> Status: ...

    async def delete(self, run: Run) -> None: ...

    async def force_delete(self, run: Run) -> None:
        """Like `delete`, but what cannot be removed is left behind."""

    async def migrate(self, run: Run) -> None: ...

    def conditions(
        self, object: Object, flow: Flow, succeeded: bool, now: datetime
    ) -> list[dict[str, Any]] | None:
        """The object's conditions after a run, or None if the kind has none."""
