"""The pool `dnsrecord`, put together."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from bus.connection import Bus
from bus.pool import Pool
from bus.queue import Queue
from bus.routing import Router
from windowbox.clients.clusters import Clusters
from windowbox.clients.nameserver import Nameserver
from windowbox.models.dnssettings import DnsSettings
from workers.dnsrecord.actuator import KIND, DNSRecordActuator
from workers.dnsrecord.claims import Claims
from workers.dnsrecord.drift import DriftCheck
from workers.lifecycle.events import Scope, classes_for
from workers.lifecycle.handler import LifeCycleHandler
from workers.lifecycle.interest import LifeCycleInterest
from workers.lifecycle.runs import LifeCycle
from workers.lifecycle.world import World


class ScopeSettings(Protocol):
    """The settings that say which objects are ours."""

    @property
    def classes(self) -> tuple[str, ...]: ...
    @property
    def ignore_operation_annotation(self) -> bool: ...


class WorkSettings(ScopeSettings, Protocol):
    """What the pool needs to know of the settings of workers."""

    @property
    def concurrency(self) -> int: ...
    @property
    def ack_wait(self) -> float: ...


@dataclass(frozen=True)
class Parts:
    """What a process has to run."""

    pool: Pool
    router: Router
    drift: DriftCheck
    tasks: dict[str, Callable[[], Coroutine[Any, Any, None]]]


def assembled(
    bus: Bus, clusters: Clusters, nameserver: Nameserver, dns: DnsSettings, work: WorkSettings
) -> Parts:
    scope = scope_of(work)
    claims = Claims(bus, scope, [zone.name for zone in dns.zones])
    world = World(bus, clusters)
    life = LifeCycle(KIND, DNSRecordActuator(nameserver, dns, claims), scope, world)
    queue = Queue(bus, KIND.pool)
    handler = LifeCycleHandler(bus, clusters, world, life)
    return Parts(
        pool=Pool(bus, KIND.pool, handler, concurrency=work.concurrency, ack_wait=work.ack_wait),
        router=Router(bus, queue, LifeCycleInterest(bus, KIND, scope)),
        drift=DriftCheck(nameserver, claims, queue, dns.drift_interval),
        tasks={"world": world.run, "claims": claims.run},
    )


def scope_of(settings: ScopeSettings) -> Scope:
    classes = classes_for(frozenset(settings.classes), KIND.classes)
    return Scope(frozenset({"local"}), classes, settings.ignore_operation_annotation)
