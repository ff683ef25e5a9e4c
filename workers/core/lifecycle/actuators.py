"""An extension kind: its Kind and its Actuator, the run that the actuator gets, and the parsed spec."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto
from typing import Any, TypeVar

from pydantic import ValidationError

from windowbox.errors import Malformed
from windowbox.models.extensions import OPERATION, ExtensionSpec
from windowbox.models.objects import Object
from windowbox.models.refs import ObjectRef, Resource
from workers.core.lifecycle import shootfacts
from workers.core.lifecycle.operations import Flow
from workers.core.lifecycle.shootfacts import ShootFacts
from workers.core.lifecycle.statuses import Descriptions
from workers.core.recorder import Recorder

Status = dict[str, Any]


class Need(Enum):
    """Whether objects of a kind belong to a Shoot."""

    NEVER = auto()
    OPTIONAL = auto()
    """Objects in namespaces of Shoots do."""
    REQUIRED = auto()
    """No run before their Shoot is known."""


@dataclass(frozen=True)
class Kind:
    """A kind of extension object."""

    resource: Resource
    pool: str
    finalizer: str
    descriptions: Descriptions
    classes: frozenset[str]
    """The classes that it supports; the setting `work.classes` chooses from them."""
    deadline: float
    """Seconds for one run, and for waiting for one thing."""
    types: frozenset[str] = frozenset({"local"})
    clouds: Mapping[str, str] = field(default_factory=dict)
    """Further types, each with its cloud: they are served while the setting `clouds.types` lists it."""
    shoot: Need = Need.REQUIRED
    stops_on_failed_shoot: bool = True
    """No run while the Shoot has failed."""
    migrates: bool = True
    """It supports control plane migration: migrate and restore."""
    migrates_only_with_finalizer: bool = False
    """An object without our finalizer is not migrated, and nothing is reported."""
    deletes_without_shoot: bool = False
    """A deletion does not need the Cluster."""
    strips_all_finalizers: bool = True
    """A migration removes the finalizers of other controllers, too."""
    resync: float | None = None
    """Seconds from a success to the next reconcile."""

    def without_unknown_operation(self, object: Object) -> Object:
        """The object without an operation annotation that this kind does not support."""
        if self.migrates or object.annotations.get(OPERATION) not in ("migrate", "restore"):
            return object
        annotations = {name: value for name, value in object.annotations.items() if name != OPERATION}
        return Object({**object.raw, "metadata": {**object.metadata, "annotations": annotations}})


async def _nowhere() -> None: ...


@dataclass(frozen=True)
class Run:
    """One run of an actuator: the object, its Shoot, and the recorder."""

    ref: ObjectRef
    object: Object
    shoot: ShootFacts | None
    """None outside shoot namespaces."""
    recorder: Recorder
    drift: bool = False
    """A repair of drift that no client has asked for."""
    dues: list[tuple[float, str]] = field(default_factory=list)
    """Seconds until the next reconcile, and its reason. Actuators append them; the earliest is used."""
    memo: dict[str, Any] = field(default_factory=dict)
    """State for the next run. Actuators change it; the next report stores it."""
    remember: Callable[[], Awaitable[None]] = _nowhere
    """Store the memo now, before an effect that only the memo records."""


def shoot_of(run: Run) -> ShootFacts:
    """The Shoot of the run; TransientError if it is not known yet."""
    shoot = run.shoot or ShootFacts()
    if not (run.object.deleting and shoot.technical_id):  # nothing was ever created under an invalid id
        shootfacts.check_technical_id(shoot, run.ref.namespace)
    return shoot


class Actuator(ABC):
    """Creates, updates and deletes what one object asks for. All methods are idempotent.

    `reconcile` and `restore` return fields to add to the status. A method does not block on other
    controllers: it raises `Waiting`, and an event of an owned object requeues.
    """

    @abstractmethod
    async def reconcile(self, run: Run) -> Status: ...

    @abstractmethod
    async def delete(self, run: Run) -> None: ...

    async def restore(self, run: Run) -> Status:
        return await self.reconcile(run)

    async def migrate(self, run: Run) -> None:  # noqa: B027
        """Release the object for another seed, and keep everything that it goes on using."""

    async def force_delete(self, run: Run) -> None:
        """Like `delete`, but objects that cannot be removed are left behind."""
        await self.delete(run)

    async def clean_up(self, run: Run, successor: Object | None) -> None:
        """Remove the owned objects of a vanished object; `run.object` is its last version.

        `successor` is a new object of the same name. Its owned objects stay: for most kinds that is all of
        them, because they are named after the object or its Shoot.
        """
        if successor is None:
            await self.delete(run)

    def forced(self, run: Run) -> bool:
        """Whether the run calls `force_delete` instead of `delete`."""
        return run.shoot is not None and run.shoot.force_deletion

    def conditions(
        self, object: Object, flow: Flow, succeeded: bool, now: datetime
    ) -> list[dict[str, Any]] | None:
        """The object's conditions after a run, or None if the kind has none."""
        return None


Spec = TypeVar("Spec", bound=ExtensionSpec)

MOST_PARTS = 5_000
"""Objects within a spec: to parse 60,000 would hold the event loop for 0.2 s."""


def parsed_spec(model: type[Spec], object: Object) -> Spec:
    """The spec, or Malformed with the first field that is wrong; not with its value, which may be secret."""
    # Provider configurations are not parsed here.
    check_parts("spec", {name: value for name, value in object.spec.items() if name != "providerConfig"})
    try:
        return model.model_validate(object.spec)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise Malformed(f"spec.{where}: {first['msg']}; correct the field") from None


def check_parts(field: str, value: Any) -> None:
    """Raise Malformed if the value has more objects within it than may be parsed at once."""
    left, seen = [value], 0
    while left:
        found = left.pop()
        seen += isinstance(found, dict)
        if seen > MOST_PARTS:
            raise Malformed(f"{field} has more than {MOST_PARTS:,} parts: take some out")
        left.extend([one for one in _inner(found) if type(one) in (dict, list)])


def _inner(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value
