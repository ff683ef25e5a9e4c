"""The edge controller: reconciles the Envoys of a host with the load balancers that the bus asks for."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from bus import queries
from bus.clusters.registry import MachinePlace, Registry
from bus.leases import guard
from bus.leases.members import Members
from bus.outcomes import backoff
from bus.transport import finishing
from bus.transport.connection import Bus
from bus.workqueue.queue import Queue
from windowbox.errors import TransientError, Unreachable, WindowboxError
from windowbox.settings.lbsettings import LoadBalancerSettings
from windowbox.telemetry import metrics
from workers.loadbalancer.edge import edgestatus
from workers.loadbalancer.edge.desired import DesiredState
from workers.loadbalancer.edge.edges import Edges
from workers.loadbalancer.edge.machineroutes import Machines
from workers.loadbalancer.edge.nodeadmission import Admission
from workers.loadbalancer.edge.nodehealth import NodeHealth
from workers.loadbalancer.edge.placement import Placement
from workers.loadbalancer.edge.reporter import NodeReport, StateReporter
from workers.loadbalancer.edgestate import States
from workers.loadbalancer.envoy.attachments import Attachment
from workers.loadbalancer.envoy.discovery import Discovery
from workers.loadbalancer.ipam.store import AddressStore
from workers.loadbalancer.links.addresses import Links
from workers.loadbalancer.tracked import LoadBalancers

logger = logging.getLogger(__name__)

T = TypeVar("T")

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
    members: Members | None = None
    """The hosts that share the addresses; None: there is one."""
    links: Links | None = None
    """Where addresses are that move between hosts."""


class EdgeTerms:
    """Runs an edge controller for each term of the host's lease."""

    def __init__(self, parts: EdgeParts) -> None:
        self._parts = parts
        self._controller: EdgeController | None = None
        self.serves_on = False
        """Whether an Envoy ran when the last term ended. A host that is shut down has none then."""

    def describe(self) -> dict[str, object]:
        """The state of the edge for `windowbox status`."""
        controller = self._controller
        return {
            "owned": controller.edges.names if controller else [],
            "load balancers": len(controller.reporter.served) if controller else 0,
            "resources": controller.discovery.describe() if controller else {},
        }

    async def run(self) -> None:
        """One term, until cancelled. Envoy keeps serving afterwards."""
        attachment, discovery = self._parts.attachment, Discovery()
        beside_us = await _until_reached(attachment.beside_us)
        try:
            async with discovery.serving(attachment.discovery_folder), asyncio.TaskGroup() as group:
                self._controller = EdgeController(self._parts, discovery, group, node_health=beside_us)
                await self._controller.run()
        finally:
            self._controller = None
            if self._parts.members:
                await finishing.to_end(self._look())  # it may be cancelled twice

    async def _look(self) -> None:
        try:
            self.serves_on = bool(await self._parts.attachment.names())
        except WindowboxError:  # no launcher answers
            self.serves_on = False


class EdgeController:
    """Runs the edges of one host for one term of the lease."""

    def __init__(
        self, parts: EdgeParts, discovery: Discovery, group: asyncio.TaskGroup, *, node_health: bool
    ) -> None:
        bus, registry, store, changed = parts.bus, parts.registry, parts.store, asyncio.Event()
        health = NodeHealth(group, self._look_at_health_again) if node_health else None
        self.discovery = discovery
        self._parts = parts
        self._group = group
        self._changed = changed
        self._machines = Machines(bus, registry, self._look_at_nodes_again, parts.machines)
        self._admission = admission = Admission(parts.settings, self._machines, self._look_at_nodes_again)
        self._desired = DesiredState(bus, registry, store, parts.settings, changed.set, admission, health)
        nodes = NodeReport(self._desired.no_backends, admission.refused)
        host = parts.settings.host
        self._placement = Placement(host, parts.members, parts.states, store, changed.set)
        self.reporter = StateReporter(parts.states, parts.queue, group, nodes, changed.set, self._placement)
        self.edges = Edges(
            parts.attachment, discovery, parts.settings, group, self.reporter.observe_all_again
        )

    async def run(self) -> None:
        """Reconcile after each change of clusters, nodes, Services, addresses and states; never returns."""
        parts, reporter = self._parts, self.reporter
        async with contextlib.AsyncExitStack() as stack:
            stack.enter_context(self._placement.following())
            for end in (
                parts.registry.on_change(self._look_at_nodes_again),
                parts.store.on_change(self._changed.set),
                parts.store.on_holder(self._desired.touch),
                parts.states.on_state(reporter.on_state),
                parts.states.bucket.on_regress(reporter.observe_all_again),
            ):
                stack.callback(end)
            await stack.enter_async_context(
                queries.answering(parts.bus, queries.edge(parts.settings.host), self._answer)
            )
            tasks = {**self._desired.tasks, "machines": self._machines.run}
            tasks["node addresses"] = lambda: self._admission.testify(parts.states)
            for name, task in tasks.items():
                self._group.create_task(guard.kept(f"edge: {name}", task), name=f"edge: {name}")
            owners = await _until_reached(self.edges.owners)
            testifying = guard.kept("edge: testimony", lambda: reporter.testify(owners))
            self._group.create_task(testifying, name="edge: testimony")
            await self._synced()
            self._admission.restore(parts.states)
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
                except Exception as error:  # of the bus and Envoy, or a bug that one object triggers
                    failures += 1
                    pause = _pause_after(failures)
                    if isinstance(error, WindowboxError):
                        logger.warning("edge: %s; again in %.1f s", error, pause)
                    else:
                        guard.note("edge", error, f"again in {pause:.1f} s")
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._changed.wait()

    async def _synced(self) -> None:
        """Wait until all Services and nodes are listed: load balancers of unlisted Services have to stay."""
        store, states = self._parts.store, self._parts.states
        await self._desired.complete()
        await states.bucket.complete.wait()
        await store.synced.wait()
        await self._machines.complete()
        await self._placement.complete()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                while True:
                    self._changed.clear()
                    known = {ref.cluster for ref in states.known()} | store.clusters()
                    # Without the complete address store, any cluster may have load balancers.
                    served = known if store.is_complete() else self._desired.clusters()
                    if not self._desired.unlisted() & served:
                        return
                    await self._changed.wait()

    def _look_at_nodes_again(self) -> None:
        self._desired.look_at_nodes_again()

    def _look_at_health_again(self, address: str) -> None:
        self._desired.look_at_health_again(address)

    async def _reconcile(self) -> None:
        """Write the desired load balancers to Envoy, and report them."""
        edges, reporter = self.edges, self.reporter
        # Without the complete address store, the load balancers stay as they are.
        if self._parts.store.is_complete() or reporter.served:
            await edges.wait_processed()  # batches changes
            wanted = await self._desired.load_balancers()
            await reporter.take(self._placement.untaken(wanted))
            await asyncio.sleep(0)  # a node's change concerns thousands
            reporter.serve(self._placement.ours(wanted))
            await asyncio.sleep(0)
            if self._parts.links:
                self._parts.links.allow(reporter.addresses)
            retry = frozenset(reporter.retrying)
            await edges.write(reporter.served, self._desired.unhealthy, retry)
            reporter.retrying -= retry
            await self._withdraw(wanted)
            reporter.observe(edges.of)
            await edges.remove_unused_addresses(self._placement.is_elsewhere)
            metrics.load_balancers.set(len(reporter.served))
            metrics.load_balancers_refused.set(len(reporter.refused))
        await edges.route(self._machines.routes(self._desired.backends()))

    async def _withdraw(self, wanted: LoadBalancers) -> None:
        """Report which load balancers this host serves no longer, and let other hosts serve theirs."""
        moving = self._placement.moving(wanted)
        if not self.reporter.withdrawn(wanted) and not moving:
            return
        # A Service releases its address after this report: Envoy must not serve it any more.
        if not await self.edges.wait_accepted():
            raise Unreachable("Envoy still serves load balancers that were removed")
        if moving:
            await self.edges.remove_unused_addresses(self._placement.is_elsewhere)
            await self.reporter.hand_over(moving)
        await self.reporter.withdraw()

    async def _answer(self, query: bytes) -> bytes:
        """The answer to `windowbox lb` and `windowbox status`."""
        usage = self._parts.store.usage()
        return await edgestatus.answer(query, self.edges.running, self.reporter.served, usage)


def _pause_after(failures: int) -> float:
    return backoff(failures, first=0.2, longest=10)


async def _until_reached(ask: Callable[[], Awaitable[T]]) -> T:
    """The answer of the attachment, which may be unreachable for any time."""
    failures = 0
    while True:
        try:
            return await ask()
        except TransientError as error:
            failures += 1
            pause = _pause_after(failures)
            logger.warning("edge: %s; again in %.1f s", error, pause)
            await asyncio.sleep(pause)
