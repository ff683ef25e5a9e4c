"""The processes: what each is made of, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import Counter

from bus import intents, presence, streams
from bus.connection import Bus, connected
from bus.leases import Leases
from bus.pool import PROCESS, Pool
from bus.queue import Queue
from bus.registry import Registry
from bus.routing import Router, run_due
from patchers.status import StatusPatcher
from watchers.watching import Watching
from windowbox.clients import kube
from windowbox.clients.clusters import Clusters, clusters
from windowbox.clients.envoy import opening as attachments
from windowbox.clients.nameserver import Nameserver
from windowbox.clients.providers import Providers
from windowbox.errors import WindowboxError
from windowbox.settings import Settings
from windowbox.telemetry import http, logs, metrics, tracing
from workers import serving
from workers.dnsrecord import pool as dnsrecord
from workers.edge import takeover
from workers.lifecycle.world import World
from workers.loadbalancer import pool as loadbalancer
from workers.loadbalancer.ipam.store import AddressStore
from workers.membership.joining import Joining
from workers.membership.providers import ProviderMembership
from workers.owned.targets import TargetClusters
from workers.pools import POOLS
from workers.serving import Common, Parts

logger = logging.getLogger(__name__)


@dataclass
class Process:
    """What all processes have: the bus, the clusters, leases, and an ear for those who ask."""

    settings: Settings
    role: str
    bus: Bus
    leases: Leases
    registry: Registry
    clusters: Clusters
    metrics: str = ""
    ready: bool = False
    tasks: dict[str, Callable[[], Coroutine[Any, Any, None]]] = field(default_factory=dict)
    details: dict[str, Callable[[], Any]] = field(default_factory=dict)
    gauges: list[Callable[[], Awaitable[None]]] = field(default_factory=list)

    def describe(self) -> dict[str, Any]:
        """What `status` shows of this process."""
        about = {"role": self.role, "process": PROCESS, "metrics": self.metrics, "ready": self.ready}
        return about | {name: tell() for name, tell in self.details.items()}

    def health(self) -> http.Health:
        """Whether a restart would help, and whether there is a bus."""
        if why := self.bus.dead:
            return http.Health(False, f"the connection to the bus is closed: {why}")
        if lost := self.bus.lost_for:
            return http.Health(True, f"ok, but without the bus for {lost:.0f} s")
        return http.Health()

    async def refresh(self) -> None:
        """Bring the gauges up to date that nobody counts along the way."""
        with contextlib.suppress(WindowboxError):
            for act in self.gauges:
                await act()

    async def run(self) -> None:
        """All that this process does, until it is told to end."""
        async with asyncio.TaskGroup() as group:
            for name, task in self.tasks.items():
                group.create_task(task(), name=name)
            self.ready = True
            logger.info("%s ready; metrics at http://%s/metrics", self.role, self.metrics)


@contextlib.asynccontextmanager
async def process(settings: Settings, role: str) -> AsyncIterator[Process]:
    """A process with its connections, which it keeps until after its last task has ended."""
    tracing.export(f"windowbox-{role}")
    async with contextlib.AsyncExitStack() as stack:
        bus = await stack.enter_async_context(connected(settings.nats.access(f"windowbox {role}")))
        runtime = await stack.enter_async_context(
            kube.from_file(settings.cluster.kubeconfig, settings.cluster.context)
        )
        registry = Registry(bus)
        opened = await stack.enter_async_context(clusters(runtime, registry))
        made = Process(settings, role, bus, Leases(bus, PROCESS), registry, opened)
        made.tasks |= {"bus": bus.watch, "leases": made.leases.run, "clusters": registry.run}
        made.metrics = await stack.enter_async_context(
            http.served(settings.metrics, lambda: made.ready and bus.connected, made.refresh, made.health)
        )
        await stack.enter_async_context(presence.answering(bus, made.describe))
        yield made


async def watch(made: Process) -> None:
    """Mirror clusters to the bus. Watchers also own the streams: they see first when those are gone."""
    settings = made.settings
    await streams.ensure(made.bus, settings.nats.replicas)
    watching = Watching(
        made.bus, made.leases, made.clusters, made.registry, settings.watch.kinds, settings.watch.page
    )
    made.details["watches"] = lambda: dict(watching.states)
    made.tasks |= {"watch": watching.run, "streams": lambda: _keep_streams(made)}


async def work(made: Process, pools: tuple[str, ...], stack: contextlib.AsyncExitStack) -> None:
    """Take work off the bus and do it."""
    _take_part(made)
    common = _common(made, stack)
    made.tasks["world"] = common.world.run
    if "dnsrecord" in pools:
        _work_on_dnsrecords(made, common, stack)
    if loadbalancer.POOL in pools and made.settings.loadbalancer.ranges:
        await _work_on_load_balancers(made, stack)
    keeping = ProviderMembership(
        made.bus, made.registry, common.targets.providers, made.settings.work.sweep_interval
    )
    made.tasks["providers"] = lambda: made.leases.while_held("providers", keeping.run)
    for pool, assembled in POOLS.items():
        if pool in pools and (parts := assembled(common)):
            _add_parts(made, parts)


def _common(made: Process, stack: contextlib.AsyncExitStack) -> Common:
    """What all pools share."""
    providers = Providers(made.clusters, made.registry)
    stack.push_async_callback(providers.aclose)
    world, targets = World(made.bus, made.clusters), TargetClusters(made.clusters, providers)
    return Common(made.bus, made.clusters, world, targets, made.settings.work, made.settings.kinds)


def _work_on_dnsrecords(made: Process, common: Common, stack: contextlib.AsyncExitStack) -> None:
    nameserver = Nameserver(made.settings.dns)
    stack.push_async_callback(nameserver.aclose)
    served = dnsrecord.served(common, nameserver, made.settings.dns)
    made.details["zones"] = lambda: [dataclasses.asdict(s) for s in nameserver.stats()]
    told: dict[tuple[Counter, str], int] = {}
    made.gauges.append(lambda: _measure_dns(nameserver, told))
    _add_parts(made, serving.parts(common, served.serving))
    made.tasks["drift"] = lambda: made.leases.while_held("drift.dnsrecord", served.drift.run)


def _take_part(made: Process) -> None:
    """Have clusters take part that say so themselves, and those that the bus has forgotten."""
    made.tasks["clusters kept"] = made.registry.keep
    if made.settings.join.enabled:
        direct = made.settings.loadbalancer.direct
        joining = Joining(made.bus, made.registry, made.settings.join, direct)
        made.tasks["join"] = lambda: made.leases.while_held("join", joining.run)


async def _work_on_load_balancers(made: Process, stack: contextlib.AsyncExitStack) -> None:
    found = takeover.taken_over(made.settings.loadbalancer)
    attachment = await stack.enter_async_context(attachments.opened(found.settings))
    parts = loadbalancer.assembled(
        made.bus,
        made.clusters,
        made.registry,
        attachment,
        found.settings,
        made.settings.work,
        found.machines,
    )
    if member := found.infrastructure:
        made.tasks["infrastructure"] = lambda: takeover.join(made.registry, member)
    made.tasks |= parts.tasks
    _add_pool(made, parts.pool, loadbalancer.POOL)
    _add_sweeps(made, parts.router, loadbalancer.POOL)
    made.gauges.append(lambda: _measure_addresses(parts.store))
    made.details["edge"] = parts.owner.describe
    made.tasks["edge"] = lambda: made.leases.while_held("edge", parts.owner.run)


async def _measure_addresses(store: AddressStore) -> None:
    for usage in store.usage():
        metrics.addresses_used.labels(usage.range, usage.family).set(usage.used)
        metrics.addresses_total.labels(usage.range, usage.family).set(usage.total)


async def patch(made: Process) -> None:
    """Write status back to the clusters."""
    settings = made.settings.patch
    handler = StatusPatcher(made.bus, made.clusters, settings.rate)
    pool = Pool(
        made.bus,
        intents.PATCH,
        handler,
        concurrency=settings.concurrency,
        ack_wait=made.settings.work.ack_wait,
    )
    _add_pool(made, pool, intents.PATCH)
    queue = Queue(made.bus, intents.PATCH)
    made.tasks["patch dues"] = lambda: run_due(made.bus, queue)
    made.tasks["patch sweep"] = lambda: made.leases.while_held("sweep.patch", lambda: _sweep(made, queue))


def _add_parts(made: Process, parts: Parts) -> None:
    name = parts.pool.queue.pool
    made.tasks |= {f"{task} of {name}": act for task, act in parts.tasks.items()}
    _add_pool(made, parts.pool, name)
    _add_sweeps(made, parts.router, name)


def _add_pool(made: Process, pool: Pool, name: str) -> None:
    made.tasks[f"pool {name}"] = pool.run
    made.gauges.append(lambda: _measure(pool.queue))
    made.details.setdefault("pools", list)
    before = made.details["pools"]
    made.details["pools"] = lambda: [*before(), {"pool": name, "in flight": pool.active}]


async def _measure(queue: Queue) -> None:
    depth = await queue.depth()
    metrics.waiting.labels(queue.pool).set(depth.waiting)
    metrics.oldest.labels(queue.pool).set(depth.oldest_seconds)


async def _measure_dns(nameserver: Nameserver, told: dict[tuple[Counter, str], int]) -> None:
    """Pass on what the connections have counted since they were asked last."""
    for zone in nameserver.stats():
        for counter, counted in (
            (metrics.dns_messages, zone.messages),
            (metrics.dns_rrsets, zone.rrsets),
            (metrics.dns_reconnections, zone.reconnections),
        ):
            before = told.get((counter, zone.zone), 0)
            # A connection that was closed meanwhile has begun to count anew.
            counter.labels(zone.zone).inc(counted - before if counted >= before else counted)
            told[counter, zone.zone] = counted
        metrics.dns_waiting.labels(zone.zone).set(zone.waiting)
        metrics.dns_connected.labels(zone.zone).set(zone.connected)
        metrics.dns_breaker.labels(zone.zone).set(zone.breaker_open)


def _add_sweeps(made: Process, router: Router, name: str) -> None:
    interval = made.settings.work.sweep_interval
    made.tasks[f"route {name}"] = router.run
    made.tasks[f"sweep {name}"] = lambda: made.leases.while_held(
        f"sweep.{name}", lambda: router.sweep(interval)
    )


async def _sweep(made: Process, queue: Queue) -> None:
    while True:
        with contextlib.suppress(WindowboxError):
            await queue.sweep(made.settings.work.sweep_interval)
        await asyncio.sleep(made.settings.work.sweep_interval)


async def _keep_streams(made: Process) -> None:
    """After every interruption see to it that the streams are there: the store may be another one."""
    back = asyncio.Event()
    with made.bus.on_reconnect(back.set):
        while True:
            await back.wait()
            back.clear()
            try:
                await streams.ensure(made.bus, made.settings.nats.replicas)
            except WindowboxError as error:
                logger.warning("streams: %s; again in 1 s", error)
                await asyncio.sleep(1)
                back.set()


Assemble = Callable[[Process, contextlib.AsyncExitStack], Awaitable[None]]


def main(settings: Settings, role: str, assemble: Assemble) -> None:
    """Run a process until SIGTERM or SIGINT: then what is being done is finished, or given back."""
    logs.configure(settings.log.format, settings.log.level)
    metrics.process_started.set(time.time())
    runner = _runner()
    with contextlib.suppress(asyncio.CancelledError):
        runner(_main(settings, role, assemble))


async def _main(settings: Settings, role: str, assemble: Assemble) -> None:
    task = asyncio.current_task()
    assert task
    loop = asyncio.get_running_loop()
    for ending in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(ending, task.cancel)
    try:
        async with process(settings, role) as made, contextlib.AsyncExitStack() as stack:
            await assemble(made, stack)
            await made.run()
    except BaseExceptionGroup as group:
        raise _first(group) from group
    finally:
        logger.info("%s (pid %d) ends", role, os.getpid())


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that ended the process: a WindowboxError is told in a sentence, the rest is a bug."""
    expected = group.subgroup(WindowboxError)
    error: BaseException = (expected or group).exceptions[0]
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _runner() -> Callable[[Coroutine[Any, Any, None]], None]:
    if sys.platform == "win32":
        return asyncio.run
    import uvloop

    return uvloop.run
