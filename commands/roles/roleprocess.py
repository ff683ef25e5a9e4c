"""The process of a role: its connections, its tasks, its metrics, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bus import schema, streams
from bus.clusters.clusters import Clusters, clusters
from bus.clusters.registry import Registry
from bus.leases import guard, presence
from bus.leases.leases import Leases
from bus.transport.connection import Bus, connected
from bus.workqueue.pool import Pool, this_process
from commands.roles import ccmconfig
from windowbox.clients.kubernetes import kube
from windowbox.errors import WindowboxError
from windowbox.settings.settings import Settings
from windowbox.telemetry import garbage, http, logs, metrics, stalls, tracing

if TYPE_CHECKING:
    from workers.core.serving import Background, Parts

logger = logging.getLogger(__name__)

Task = Callable[[], Coroutine[Any, Any, None]]

_ASKED = {"work": streams.OBJECTS, "patch": streams.WORK, "edge": f"KV_{streams.ADDRESSES}"}
"""A stream that the role may read, for the version of the bus's schema. Watchers may read all."""
_HOST_SECONDS = 2.0
"""How long the leases of a process live that serves the addresses of its host."""
_FATAL = ("bus", "bus of leases", "schema")
"""Tasks whose errors end the process: the bus is lost for ever, or a newer version writes what we misread."""


@dataclass
class Process:
    """A process of any role: a connection to the bus, leases, tasks, metrics; and API servers on demand."""

    settings: Settings
    role: str
    bus: Bus
    leases: Leases
    registry: Registry
    closing: contextlib.AsyncExitStack
    """Closes after the last task has ended."""
    metrics: str = ""
    ready: bool = False
    tasks: dict[str, Task] = field(default_factory=dict)
    pools: list[Pool] = field(default_factory=list)
    details: dict[str, Callable[[], Any]] = field(default_factory=dict)
    gauges: list[Callable[[], Awaitable[None]]] = field(default_factory=list)

    _clusters: Clusters | None = None

    async def clusters(self) -> Clusters:
        """The API servers. Connects with the first call: not all roles have a kubeconfig."""
        if self._clusters is None:
            settings = self.settings
            # A cloud-controller-manager's file may name one more cluster; no other files are read.
            member = ccmconfig.applied(settings.loadbalancer).infrastructure
            files = {member.id: Path(member.file)} if member and member.file else {}
            runtime = await self.closing.enter_async_context(
                kube.from_file(settings.cluster.kubeconfig, settings.cluster.context)
            )
            self._clusters = await self.closing.enter_async_context(
                clusters(runtime, self.registry, settings.egress, settings.cluster.files | files)
            )
        return self._clusters

    def add_leased(self, lease: str, task: Task, kept: Callable[[], float] | None = None) -> None:
        """Run a task while this process holds the lease, so in one process at a time.

        After an orderly end, the lease is `kept` for a successor for so many seconds, if it says any.
        """
        self.tasks[f"lease {lease}"] = lambda: self.leases.while_held(lease, task, kept=kept)

    def add_parts(self, parts: Parts) -> None:
        """Run a pool with its routing, its sweep and its background tasks."""
        name, interval = parts.pool.queue.pool, self.settings.work.sweep_interval
        self.add_pool(parts.pool)
        self.add_background(name, parts)
        self.tasks[f"route {name}"] = parts.router.run
        self.add_leased(f"sweep.{name}", lambda: parts.router.sweep(interval))

    def add_background(self, name: str, background: Background) -> None:
        """Run the tasks of a pool that do not belong to items, and show its details and gauges."""
        self.tasks |= {f"{task} of {name}": act for task, act in background.tasks.items()}
        for lease, act in background.leased.items():
            self.add_leased(lease, act)
        self.details |= background.details
        self.gauges += background.gauges

    def add_pool(self, pool: Pool) -> None:
        """Take items of a pool, and measure its queue."""

        async def measure() -> None:
            depth = await pool.queue.depth()
            metrics.waiting.labels(pool.queue.pool).set(depth.waiting)
            metrics.oldest.labels(pool.queue.pool).set(depth.oldest_seconds)

        self.pools.append(pool)
        self.tasks[f"pool {pool.queue.pool}"] = pool.run
        self.gauges.append(measure)

    def describe(self) -> dict[str, Any]:
        """The details that `windowbox status` shows of this process."""
        about = {"role": self.role, "process": this_process(), "metrics": self.metrics, "ready": self.ready}
        about[presence.RANKED] = True
        if self.pools:
            about["pools"] = [{"pool": pool.queue.pool, "in flight": pool.active} for pool in self.pools]
        return about | {name: detail() for name, detail in self.details.items()}

    def health(self) -> http.Health:
        """Unhealthy only if a restart helps: a lost connection is restored, a closed one is not."""
        if why := self.bus.dead:
            return http.Health(False, f"the connection to the bus is closed: {why}")
        if lost := self.bus.lost_for:
            return http.Health(True, f"ok, but without the bus for {lost:.0f} s")
        return http.Health()

    async def refresh(self) -> None:
        """Set the gauges that are only computed when they are read."""
        with contextlib.suppress(WindowboxError):
            for act in self.gauges:
                await act()

    async def run(self) -> None:
        """Run all tasks until the process is cancelled. A bug in one of them does not end the others."""
        with garbage.bounded():
            async with asyncio.TaskGroup() as group:
                for name, task in self.tasks.items():
                    group.create_task(task() if name in _FATAL else guard.kept(name, task), name=name)
                self.ready = True
                logger.info("%s ready; metrics at http://%s/metrics", self.role, self.metrics)


@contextlib.asynccontextmanager
async def process(settings: Settings, role: str) -> AsyncIterator[Process]:
    """A process with its connections, which stay open until its last task has ended.

    Closes in reverse order: API servers and clients first, then presence, metrics and the bus.
    """
    tracing.export(f"windowbox-{role}")
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(stalls.watched())
        # Where thousands of objects are on their way, the responses that renew leases would come too late.
        ours = await stack.enter_async_context(connected(settings.nats.access(f"windowbox {role} leases")))
        bus = await stack.enter_async_context(connected(settings.nats.access(f"windowbox {role}")))
        if stream := _ASKED.get(role):
            await schema.check(bus, stream)
        registry = Registry(bus)
        closing = contextlib.AsyncExitStack()
        # A host that dies is missed sooner than other processes.
        seconds = _HOST_SECONDS if settings.loadbalancer.host else streams.LEASE_SECONDS
        leases = Leases(ours, this_process(), role, seconds)
        made = Process(settings, role, bus, leases, registry, closing)
        made.tasks |= {"bus": bus.watch, "bus of leases": ours.watch}
        made.tasks |= {"leases": made.leases.run, "clusters": registry.run}
        if stream:
            made.tasks["schema"] = lambda: schema.watch(bus, stream)
        made.metrics = await stack.enter_async_context(
            http.served(
                settings.metrics,
                lambda: made.ready and bus.connected,
                made.refresh,
                made.health,
                probes=settings.probes,
            )
        )
        await stack.enter_async_context(presence.answering(bus, made.describe))
        async with closing:
            yield made


Assemble = Callable[[Process], Awaitable[None]]


def main(settings: Settings, role: str, assemble: Assemble) -> None:
    """Run a process until SIGTERM or SIGINT; then its runs finish, or their items return to the queue."""

    async def serve() -> None:
        async with process(settings, role) as made:
            await assemble(made)
            await made.run()

    run(settings, role, serve)


def run(settings: Settings, role: str, task: Task) -> None:
    """Run `task` in an event loop until SIGTERM or SIGINT."""
    logs.configure(settings.log.format, settings.log.level)
    metrics.process_started.set(time.time())

    async def until_signal() -> None:
        current, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert current
        for ending in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(ending, current.cancel)
        try:
            await task()
        except BaseExceptionGroup as group:
            # Of several errors, raise an expected one, whose message is one sentence. All others are bugs.
            error: BaseException = group.subgroup(WindowboxError) or group
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            raise error from group
        finally:
            logger.info("%s (pid %d) ends", role, os.getpid())

    with contextlib.suppress(asyncio.CancelledError):
        if sys.platform == "win32":
            asyncio.run(until_signal())
        else:
            import uvloop

            uvloop.run(until_signal())
