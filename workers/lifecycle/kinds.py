"""What a kind brings to the life cycle that all extension kinds share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto
from typing import Any

from windowbox.models.extensions import OPERATION
from windowbox.models.objects import Object
from windowbox.models.refs import ObjectRef, Resource
from workers.lifecycle import shoots
from workers.lifecycle.operations import Flow
from workers.lifecycle.shoots import ShootFacts
from workers.lifecycle.statuses import Descriptions
from workers.recorder import Recorder

Status = dict[str, Any]


class Need(Enum):
    """Whether objects of a kind belong to a Shoot."""

    NEVER = auto()
    OPTIONAL = auto()
    """In namespaces of Shoots they do."""
    REQUIRED = auto()
    """Without knowing their Shoot nothing can be done."""


@dataclass(frozen=True)
class Kind:
    """A kind of extension object."""

    resource: Resource
    pool: str
    finalizer: str
    descriptions: Descriptions
    classes: frozenset[str]
    """Those it can serve; which it does serve is a setting."""
    deadline: float
    """Seconds for one run, and for waiting for one thing."""
    types: frozenset[str] = frozenset({"local"})
    shoot: Need = Need.REQUIRED
    stops_on_failed_shoot: bool = True
    """Nothing is done while the Shoot has failed."""
    migrates: bool = True
    """It can be handed over to another seed, and taken over from one."""
    migrates_only_with_finalizer: bool = False
    """Of what was never held on to, nothing is handed over, nor is that said."""
    deletes_without_shoot: bool = False
    """A deletion does not wait for a Cluster that is gone: it needs nothing from it."""
    strips_all_finalizers: bool = True
    """Handed over, an object loses the finalizers of all, not only ours."""
    resync: float | None = None
    """Seconds after a success until everything is looked at again."""

    def without_unknown_operation(self, object: Object) -> Object:
        """The object without a wish that this kind does not know."""
        if self.migrates or object.annotations.get(OPERATION) not in ("migrate", "restore"):
            return object
        annotations = {name: value for name, value in object.annotations.items() if name != OPERATION}
        return Object({**object.raw, "metadata": {**object.metadata, "annotations": annotations}})


@dataclass(frozen=True)
class Run:
    """What an actuator is given."""

    ref: ObjectRef
    object: Object
    shoot: ShootFacts | None
    """None outside shoot namespaces."""
    recorder: Recorder
    drift: bool = False
    """Nobody has asked for it: what has changed by itself is put right."""
    dues: list[float] = field(default_factory=list)
    """Seconds after which everything is to be looked at again: an actuator adds what it knows of."""


def shoot_of(run: Run) -> ShootFacts:
    """The Shoot of a kind that does nothing without one."""
    shoot = run.shoot or ShootFacts()
    if not (run.object.deleting and shoot.technical_id):  # under a wrong one nothing was ever made
        shoots.check_technical_id(shoot, run.ref.namespace)
    return shoot


class Actuator(ABC):
    """Makes the world what one object asks for. Everything here is safe to repeat.

    `reconcile` and `restore` return what they have to add to the status. What others have to bring about
    is not waited for: `Waiting` is raised, and an event of what the object owns starts the next run.
    """

    @abstractmethod
    async def reconcile(self, run: Run) -> Status: ...

    @abstractmethod
    async def delete(self, run: Run) -> None: ...

    async def restore(self, run: Run) -> Status:
        return await self.reconcile(run)

    async def migrate(self, run: Run) -> None:  # noqa: B027
        """Let go of the object without taking away what the next seed goes on with."""

    async def force_delete(self, run: Run) -> None:
        """Like `delete`, but what cannot be removed is left behind."""
        await self.delete(run)

    async def clean_up(self, run: Run, successor: Object | None) -> None:
        """Remove what was made for an object that is gone already: `run.object` is its last version.

        Another object has its name now, if `successor` is given. What that asks for stays: for most kinds
        everything, since their results bear the name of the object or of its Shoot.
        """
        if successor is None:
            await self.delete(run)

    def forced(self, run: Run) -> bool:
        """Whether `force_delete` is to be called instead of `delete`."""
        return run.shoot is not None and run.shoot.force_deletion

    def conditions(
        self, object: Object, flow: Flow, succeeded: bool, now: datetime
    ) -> list[dict[str, Any]] | None:
        """The object's conditions after a run, or None if the kind has none."""
        return None
