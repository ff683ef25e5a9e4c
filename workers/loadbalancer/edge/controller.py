"""The edge controller: reconciles the Envoys of a host with the load balancers that the bus asks for."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass

from bus import queries
from bus.clusters.registry import MachinePlace, Registry
from bus.outcomes import backoff
from bus.transport.connection import Bus
from bus.workqueue.queue import Queue
from windowbox.errors import Unreachable, WindowboxError
from windowbox.settings.lbsettings import LoadBalancerSettings
from windowbox.telemetry import metrics
from workers.loadbalancer.edge import status
from workers.loadbalancer.edge.admission import Admission
from workers.loadbalancer.edge.desired import DesiredState
from workers.loadbalancer.edge.edges import Edges
from workers.loadbalancer.edge.nodehealth import NodeHealth
from workers.loadbalancer.edge.reporter import NodeReport, StateReporter
from workers.loadbalancer.edge.retries import pause_after, until_reached
from workers.loadbalancer.edge.routes import Machines
from workers.loadbalancer.edge.testimony import Testimony
from workers.loadbalancer.edgestate import States
from workers.loadbalancer.envoy.attachments import Attachment
from workers.loadbalancer.ipam.store import AddressStore

logger = logging.getLogger(__name__)

_PATIENCE = 30.0
"""Seconds to wait for listings, before load balancers of clusters without a listing are removed."""
_LINGERING = 60.0
"""The longest pause between two checks of addresses that are removed once their connections have ended.

The first checks follow soon: most connections end within seconds of their Service."""


@dataclass(frozen=True)
class EdgeParts:
    """The dependencies of an edge controller. They outlive each term of the lease."""

    bus: Bus
    registry: Registry
    store: AddressStore
    states: States
    attachment: Attachment
    settings: LoadBalancerSettings
    queue: Queue
    """The work queue of Services."""
    machines: MachinePlace | None = None
    """Where the machines of the runtime cluster are, if its nodes run in Pods."""


class EdgeTerms:
    """Runs an edge controller for each term of the lease `edge`."""

    def __init__(self, parts: EdgeParts) -> None:
        self._parts = parts
        self._controller: EdgeController | None = None

    def describe(self) -> dict[str, object]:
        """The state of the edge for `windowbox status`."""
        controller = self._controller
        return {
            "owned": controller.edges.names if controller else [],
            "load balancers": len(controller.reporter.served) if controller else 0,
        }

    async def run(self) -> None:
        """One term, until cancelled. Envoy keeps serving afterwards."""
        parts = self._parts
        beside_us = await until_reached(parts.attachment.beside_us)
        try:
            async with asyncio.TaskGroup() as group:
                self._controller = controller = EdgeController(parts, group, node_health=beside_us)
                with controller.subscribed():
                    async with queries.answering(parts.bus, queries.EDGE, controller.answer):
                        await controller.run()
        finally:
            self._controller = None


class EdgeController:
    """Runs the edges of one host for one term of the lease."""

    def __init__(self, parts: EdgeParts, group: asyncio.TaskGroup, *, node_health: bool) -> None:
        bus, registry, store, changed = parts.bus, parts.registry, parts.store, asyncio.Event()
        health = NodeHealth(group, changed.set) if node_health else None
        self._parts = parts
        self._group = group
        self._changed = changed
        self._machines = Machines(bus, registry, changed.set, parts.machines)
        admission = Admission(parts.settings, self._machines, changed.set)
        self._desired = DesiredState(bus, registry, store, parts.settings, changed.set, admission, health)
        nodes = NodeReport(self._desired.no_backends, admission.refused)
        self.reporter = StateReporter(parts.states, parts.queue, group, nodes, changed.set)
        self.edges = Edges(parts.attachment, parts.settings, group, self.reporter.observe_all_again)

    @contextlib.contextmanager
    def subscribed(self) -> Iterator[None]:
        """Reconcile after changes of clusters, addresses and states."""
        parts, states = self._parts, self._parts.states.bucket
        with contextlib.ExitStack() as stack:
            stack.callback(parts.registry.on_change(self._changed.set))
            stack.callback(parts.store.on_change(self._changed.set))
            stack.callback(parts.store.on_holder(self._desired.touch))
            stack.callback(parts.states.on_state(self.reporter.on_state))
            stack.callback(states.on_regress(self.reporter.observe_all_again))
            yield

    async def answer(self, query: bytes) -> bytes:
        """The answer to `windowbox lb` and `windowbox status`."""
        return await status.answer(query, self.edges.running, self.reporter.served, self._parts.store.usage())

    async def run(self) -> None:
        """Reconcile after each change; never returns."""
        for name, task in {**self._desired.tasks, "machines": self._machines.run}.items():
            self._group.create_task(task(), name=f"edge: {name}")
        await until_reached(self.edges.resume)
        testimony = Testimony(self._parts.states, self.reporter, await until_reached(self.edges.owners))
        self._group.create_task(testimony.run(), name="edge: testimony")
        await self._synced()
        failures = lingering = 0
        while True:
            self._changed.clear()
            pause: float | None = None
            try:
                await self._reconcile()
                failures = 0
                lingering = lingering + 1 if self.edges.lingering else 0
                if lingering:
                    pause = backoff(lingering, first=1.0, longest=_LINGERING)
            except WindowboxError as error:
                failures += 1
                pause = pause_after(failures)
                logger.warning("edge: %s; again in %.1f s", error, pause)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._changed.wait()

    async def _synced(self) -> None:
        """Wait until all Services and nodes are listed: those of unlisted Services are not to be removed."""
        await self._desired.complete()
        await self._parts.states.bucket.complete.wait()
        await self._parts.store.synced.wait()
        await self._machines.complete()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                while self._desired.unlisted() & self._served_clusters():
                    self._changed.clear()
                    await self._changed.wait()

    def _served_clusters(self) -> set[str]:
        """The known clusters with load balancers."""
        store = self._parts.store
        if not store.is_complete():
            return self._desired.clusters()
        states = {ref.cluster for ref in self._parts.states.known()}
        return states | store.clusters()

    async def _reconcile(self) -> None:
        """Write the desired load balancers to Envoy, and report them."""
        if self._parts.store.is_complete() or self.reporter.served:
            await self.edges.wait_processed()  # batches changes
            self.reporter.serve(self._desired.load_balancers())
            retry = frozenset(self.reporter.retrying)
            written = await self.edges.write(self.reporter.served, retry)
            self.reporter.retrying -= retry
            if self.reporter.withdrawn():
                if not await self.edges.wait_accepted():
                    raise Unreachable("Envoy still serves load balancers that were removed")
                await self.reporter.withdraw()
            for edge, load_balancers in written:
                self.reporter.observe(edge, load_balancers)
            await self.edges.remove_unused_addresses()
            metrics.load_balancers.set(len(self.reporter.served))
        # Without the complete address store the load balancers stay as they are.
        await self.edges.route(self._machines.routes(self._desired.backends()))
