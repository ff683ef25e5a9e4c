"""The pool `loadbalancer`, put together."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from bus import streams
from bus.buckets import Bucket
from bus.connection import Bus
from bus.pool import Pool
from bus.queue import Queue
from bus.registry import MachinePlace, Registry
from bus.routing import Router
from windowbox.clients.clusters import Clusters
from windowbox.clients.envoy.attachments import Attachment
from windowbox.models.lbsettings import LoadBalancerSettings
from workers.loadbalancer.addresses import Addresses
from workers.loadbalancer.book import Book
from workers.loadbalancer.handler import ServiceHandler
from workers.loadbalancer.interest import ServiceInterest
from workers.loadbalancer.owner import Owner
from workers.loadbalancer.runs import ServiceRuns
from workers.loadbalancer.states import States
from workers.loadbalancer.world import ServiceWorld

POOL = "loadbalancer"


class WorkSettings(Protocol):
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
    owner: Owner
    book: Book
    tasks: dict[str, Callable[[], Coroutine[Any, Any, None]]]


def assembled(
    bus: Bus,
    clusters: Clusters,
    registry: Registry,
    attachment: Attachment,
    settings: LoadBalancerSettings,
    work: WorkSettings,
    machines: MachinePlace | None = None,
) -> Parts:
    queue = Queue(bus, POOL)
    book = Book(bus, settings.ranges)
    states = States(Bucket(bus, streams.EDGES))
    world = ServiceWorld(bus, clusters, states)
    runs = ServiceRuns(world, Addresses(book, queue), settings)
    handler = ServiceHandler(bus, clusters, world, book, runs)
    return Parts(
        pool=Pool(bus, POOL, handler, concurrency=work.concurrency, ack_wait=work.ack_wait),
        router=Router(bus, queue, ServiceInterest(settings.classes)),
        owner=Owner(bus, clusters, registry, book, states, attachment, settings, queue, machines),
        book=book,
        tasks={"addresses": book.run, "edge states": states.bucket.run},
    )
