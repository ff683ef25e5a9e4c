"""From a kind to what a process runs for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol

from bus.connection import Bus
from bus.pool import Pool
from bus.queue import Queue
from bus.routing import EventMapping, Router
from windowbox.clients.clusters import Clusters
from windowbox.models.kindsettings import KindSettings
from windowbox.models.refs import Resource
from workers.lifecycle.handler import LifeCycleHandler
from workers.lifecycle.kinds import Actuator, Kind
from workers.lifecycle.mapping import LifeCycleMapping
from workers.lifecycle.predicates import Scope, classes_for
from workers.lifecycle.runs import LifeCycle
from workers.lifecycle.world import World
from workers.owned.mapping import OwnerMapping, Owners
from workers.owned.targets import TargetClusters

_AT_ONCE = 16
"""The API server's processors are the bound of what these kinds do: with more at once each only takes longer,
until it takes so long that it has to be announced, which costs the API server another write."""

Tasks = dict[str, Callable[[], Coroutine[Any, Any, None]]]


class WorkSettings(Protocol):
    """What pools need to know of the settings of workers."""

    @property
    def concurrency(self) -> int: ...
    @property
    def ack_wait(self) -> float: ...
    @property
    def classes(self) -> tuple[str, ...]: ...
    @property
    def ignore_operation_annotation(self) -> bool: ...


@dataclass(frozen=True)
class Common:
    """What all pools of one process share."""

    bus: Bus
    clusters: Clusters
    world: World
    targets: TargetClusters
    work: WorkSettings
    kinds: KindSettings


@dataclass(frozen=True)
class Serving:
    """One kind of extension object, and who acts for it."""

    kind: Kind
    actuator: Actuator
    made: tuple[Resource, ...] = ()
    """The kinds of what it makes, as far as that is watched."""
    awaited: tuple[Resource, ...] = ()
    """The kinds of what others make and it cannot do without."""
    owners: Owners | None = None
    known: Callable[[], Awaitable[object]] | None = None
    """Waits until all owners are known: who asked earlier would take what they made for nobody's."""
    tasks: Tasks = field(default_factory=dict)
    """What has to run beside it."""
    at_once: int | None = _AT_ONCE
    """How many objects are worked on at once, where the settings allow more."""


@dataclass(frozen=True)
class Parts:
    """What a process has to run for one pool."""

    pool: Pool
    router: Router
    tasks: Tasks


def life_cycle(common: Common, serving: Serving) -> LifeCycle:
    return LifeCycle(serving.kind, serving.actuator, scope(common, serving.kind), common.world)


def parts(common: Common, serving: Serving) -> Parts:
    """The pool of a kind of extension object."""
    kind, work = serving.kind, common.work
    handler = LifeCycleHandler(common.bus, common.clusters, common.world, life_cycle(common, serving))
    own = LifeCycleMapping(common.bus, kind, scope(common, kind))
    mapping: EventMapping = own
    if serving.owners:
        known = (common.world.complete, *([serving.known] if serving.known else []))
        mapping = OwnerMapping(own, serving.owners, made=serving.made, awaited=serving.awaited, known=known)
    at_once = min(work.concurrency, serving.at_once or work.concurrency)
    return Parts(
        pool=Pool(common.bus, kind.pool, handler, concurrency=at_once, ack_wait=work.ack_wait),
        router=Router(common.bus, Queue(common.bus, kind.pool), mapping),
        tasks=serving.tasks,
    )


def scope(common: Common, kind: Kind) -> Scope:
    classes = classes_for(frozenset(common.work.classes), kind.classes)
    return Scope(kind.types, classes, common.work.ignore_operation_annotation)
