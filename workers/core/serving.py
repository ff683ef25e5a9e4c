"""The parts that all pools share, and those that a process runs for each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol

from bus.clusters.clusters import Clusters
from bus.clusters.registry import Registry
from bus.transport.connection import Bus
from bus.workqueue.pool import Pool
from bus.workqueue.queue import Queue
from bus.workqueue.ranks import Rank
from bus.workqueue.routing import Router
from windowbox.clients.nameserver import Nameserver
from windowbox.kinds import POOLS
from windowbox.settings.dnssettings import DnsSettings
from windowbox.settings.kindsettings import KindSettings
from windowbox.settings.lbsettings import LoadBalancerSettings
from workers.core.lifecycle.actuators import Actuator, Kind
from workers.core.lifecycle.lifecycle import LifeCycle
from workers.core.lifecycle.lifecyclemapping import LastUser, LifeCycleMapping, Waiters
from workers.core.lifecycle.runpredicates import Scope, classes_for
from workers.core.lifecycle.world import World
from workers.core.owned.ownermapping import Awaited, OwnerMapping, Owners
from workers.core.owned.targets import TargetClusters
from workers.core.reconcile import EXTENSION_BACKOFF, ReconcileHandler

CONCURRENCY = 16
"""The API server's CPU limits these kinds: with more at once each run only takes longer, until it takes so
long that Processing has to be reported, which costs the API server another write."""

Tasks = dict[str, Callable[[], Coroutine[Any, Any, None]]]
Details = dict[str, Callable[[], Any]]
Gauges = tuple[Callable[[], Awaitable[None]], ...]


class WorkSettings(Protocol):
    """The settings of workers that pools read."""

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
    """The connections and settings that all pools of one process share."""

    bus: Bus
    clusters: Clusters
    registry: Registry
    world: World
    targets: TargetClusters
    nameserver: Nameserver
    closing: AsyncExitStack
    """Closes what pools have opened, after the last task of the process has ended."""
    work: WorkSettings
    kinds: KindSettings = field(default_factory=KindSettings)
    dns: DnsSettings = field(default_factory=lambda: DnsSettings(zones=[]))
    loadbalancer: LoadBalancerSettings = field(default_factory=LoadBalancerSettings)


@dataclass(frozen=True, kw_only=True)
class Background:
    """The tasks that run beside a pool."""

    tasks: Tasks = field(default_factory=dict)
    """In every process."""
    leased: Tasks = field(default_factory=dict)
    """In one process at a time, by the name of the lease."""
    details: Details = field(default_factory=dict)
    """The details that `windowbox status` shows of it."""
    gauges: Gauges = ()
    """Called before each scrape, to set gauges."""


@dataclass(frozen=True)
class Serving(Background):
    """One kind of extension object, and its actuator."""

    kind: Kind
    actuator: Actuator
    owners: Owners | None = None
    known: Callable[[], Awaitable[object]] | None = None
    """Waits until all owners are known: before, owned objects would look like orphans."""
    awaits_status: Awaited = lambda *_: True
    """Of which owned objects the status is waited for."""
    waiters: Waiters | None = None
    last_user: LastUser | None = None
    concurrency: int | None = CONCURRENCY
    """How many objects are reconciled at once, where the settings allow more."""
    ranked: bool = False
    """Whether one process is preferred. Not for runs that take much CPU time: it would get the first 64."""


@dataclass(frozen=True)
class Parts(Background):
    """The parts that a process runs for one pool."""

    pool: Pool
    router: Router


def life_cycle(common: Common, serving: Serving) -> LifeCycle:
    return LifeCycle(serving.kind, serving.actuator, scope(common, serving.kind), common.world)


def parts(common: Common, serving: Serving) -> Parts:
    """The parts that a process runs for a kind of extension object."""
    kind, work, row = serving.kind, common.work, POOLS[serving.kind.pool]
    reconciler, ready = life_cycle(common, serving), common.world.complete
    concurrency = min(work.concurrency, serving.concurrency or work.concurrency)
    handler = ReconcileHandler(common.bus, common.clusters, reconciler, ready, EXTENSION_BACKOFF)
    rank = Rank(common.bus)
    pool = Pool(
        common.bus,
        kind.pool,
        handler,
        concurrency=concurrency,
        ack_wait=work.ack_wait,
        rank=rank if serving.ranked else None,
        sharing=lambda ref: ref.cluster,
    )
    own = LifeCycleMapping(common.bus, kind, scope(common, kind), serving.waiters, serving.last_user)
    mapping: LifeCycleMapping | OwnerMapping = own
    if serving.owners:
        known = (common.world.complete, *([serving.known] if serving.known else []))
        mapping = OwnerMapping(
            own,
            serving.owners,
            made=row.owns,
            awaited=row.awaits,
            known=known,
            awaits_status=serving.awaits_status,
            wrote=pool.wrote,
        )
    return Parts(
        pool=pool,
        router=Router(common.bus, Queue(common.bus, kind.pool), mapping, rank, own.ignores, mapping.defers),
        tasks=serving.tasks,
        leased=serving.leased,
        details=serving.details,
        gauges=serving.gauges,
    )


def scope(common: Common, kind: Kind) -> Scope:
    classes = classes_for(frozenset(common.work.classes), kind.classes)
    of_clouds = {type_ for type_, cloud in kind.clouds.items() if cloud in common.kinds.clouds.types}
    return Scope(kind.types | of_clouds, classes, common.work.ignore_operation_annotation)
