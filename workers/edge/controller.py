"""The owner of the edges: sees to it that Envoy is what the bus says it ought to be."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

from bus import queries, subjects
from bus.connection import Bus
from bus.messages import Reason, Wish
from bus.pool import backoff
from bus.queue import Queue
from bus.registry import MachinePlace, Registry
from windowbox.clients.clusters import Clusters
from windowbox.clients.envoy.attachments import Attachment
from windowbox.clients.envoy.edge import Edge
from windowbox.clients.envoy.readiness import Applied
from windowbox.errors import TransientError, Unreachable, WindowboxError
from windowbox.models.lbsettings import LoadBalancerSettings
from windowbox.models.loadbalancers import LoadBalancer
from windowbox.models.refs import ObjectRef
from windowbox.telemetry import metrics
from workers.edge import status
from workers.edge.adoption import Adoption
from workers.edge.desired import DesiredState, LoadBalancers
from workers.edge.edges import Edges
from workers.edge.nodehealth import NodeHealth
from workers.edge.routes import Machines
from workers.loadbalancer.edgestate import EdgeState, States
from workers.loadbalancer.ipam.store import AddressStore

logger = logging.getLogger(__name__)

T = TypeVar("T")

_PATIENCE = 30.0
"""Seconds that a new owner waits to hear of all clusters, before it takes what it does not see for gone."""
_SWEEP = 60.0
_ADOPT_AGAIN = 5.0
_SOON = 1.0


@dataclass
class EdgeController:
    """Owns the edges of one host."""

    bus: Bus
    clusters: Clusters
    registry: Registry
    store: AddressStore
    states: States
    attachment: Attachment
    settings: LoadBalancerSettings
    queue: Queue
    machines: MachinePlace | None = None
    """Where the machines of the runtime cluster are, should its nodes run in Pods."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _edges: Edges | None = None
    _settled: dict[ObjectRef, LoadBalancer] = field(default_factory=dict)
    _told: set[ObjectRef] = field(default_factory=set)
    """The Services that were asked to look, at least once."""
    _said: dict[ObjectRef, EdgeState] = field(default_factory=dict)
    """How those stand that were looked at."""
    _leaving: set[ObjectRef] = field(default_factory=set)
    """The Services that are carried no longer, and were not told so yet."""
    _tries: dict[ObjectRef, int] = field(default_factory=dict)
    _retrying: set[ObjectRef] = field(default_factory=set)
    _woken: set[ObjectRef] = field(default_factory=set)
    """Those who wait though there is an address for them, and were asked to look."""
    _load_balancers: LoadBalancers = field(default_factory=dict)
    _doubtful: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it has to be learned which addresses are in use."""

    def __post_init__(self) -> None:
        self.registry.on_change(self._changed.set)
        self.store.on_change(self._look_at_book)
        self.states.bucket.on_change(self._heard)
        self.states.bucket.on_regress(self._started)

    def describe(self) -> dict[str, object]:
        """What `status` shows of the edges."""
        return {
            "owned": self._edges.names if self._edges else [],
            "load balancers": len(self._load_balancers),
        }

    async def run(self) -> None:
        """Own them until cancelled. For the holder of the lease `edge`. Envoy goes on without us."""
        beside_us = await _reached(self.attachment.beside_us)
        machines = Machines(self.bus, self.registry, self._changed.set, self.machines)
        self._settled, self._tries, self._load_balancers = {}, {}, {}
        self._told, self._woken, self._said, self._leaving = set(), set(), {}, set()
        answering = queries.answering(self.bus, queries.EDGE, self._answer)
        async with answering, asyncio.TaskGroup() as group:
            health = NodeHealth(group, self._changed.set) if beside_us else None
            desired = DesiredState(
                self.bus, self.registry, self.store, self.settings, self._changed.set, health
            )
            for name, task in {**desired.tasks, "machines": machines.run}.items():
                group.create_task(task(), name=f"edge: {name}")
            self._edges = Edges(self.attachment, self.settings, group, self._started)
            await _reached(self._edges.resume)
            await self._begin(desired)
            await machines.complete()
            group.create_task(self._adopt(), name="edge: adopt")
            group.create_task(self._sweep(desired), name="edge: sweep")
            await self._serve(desired, machines, self._edges, group)

    async def _answer(self, question: bytes) -> bytes:
        running = self._edges.running if self._edges else []
        return await status.told(question, running, self._load_balancers, self.store.usage())

    async def _begin(self, desired: DesiredState) -> None:
        """Learn all that is known, so that nothing that serves is taken for gone."""
        await desired.complete()
        await self.states.bucket.complete.wait()
        await self.store.complete.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                while desired.unheard() & self._serving(desired):
                    self._changed.clear()
                    await self._changed.wait()

    def _serving(self, desired: DesiredState) -> set[str]:
        """The clusters that have load balancers already, as far as one can know."""
        if not self.store.settled():
            return desired.clusters()  # the bus has forgotten, or never knew
        states = {ref.cluster for ref in self.states.known()}
        return states | {holder.cluster for _, holder in self.store.holders()}

    async def _serve(
        self, desired: DesiredState, machines: Machines, edges: Edges, group: asyncio.TaskGroup
    ) -> None:
        failures = 0
        while True:
            self._changed.clear()
            pause: float | None = None
            try:
                await self._reconcile(desired, edges, group)
                await edges.route(machines.routes(desired.backends()))
                await self._wake()
                failures = 0
            except WindowboxError as error:
                failures += 1
                pause = backoff(failures, first=0.2, longest=10)
                logger.warning("edge: %s; again in %.1f s", error, pause)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._changed.wait()

    async def _adopt(self) -> None:
        """Learn which addresses are in use: at the beginning, and whenever the bus has forgotten it.

        Clusters that do not answer take their time; whoever serves must not wait for them.
        """
        adoption = Adoption(self.bus, self.store, self.clusters, self.registry, self.settings)
        self._doubtful.set()
        while True:
            await self._doubtful.wait()
            self._doubtful.clear()
            try:
                for ref in await adoption.adopt():
                    await self.queue.wish(subjects.key(ref), Wish(reason=Reason.ADDRESS))
            except WindowboxError as error:
                logger.warning("edge: %s", error)
                await asyncio.sleep(_ADOPT_AGAIN if self.store.settled() else _SOON)
                self._doubtful.set()

    async def _wake(self) -> None:
        """Have those looked at who wait though there is an address: whoever was to wake them may have died,
        or have looked a moment before they came."""
        servable = set(self.store.servable())
        for ref in sorted(servable - self._woken):
            # Not a reminder: a wish that stands there may be at the end of a run that found no address.
            await self.queue.requeue(subjects.key(ref), Wish(reason=Reason.ADDRESS))
        self._woken = servable

    async def _sweep(self, desired: DesiredState) -> None:
        """Now and then look for addresses that nobody has any more."""
        while True:
            with contextlib.suppress(WindowboxError):
                if self.store.settled():
                    now = datetime.now(UTC).timestamp()
                    overdue = [kept.ref for kept in self.store.expired(now)]
                    holding = [holder.ref for _, holder in self.store.holders() if not holder.until]
                    orphans = [ref for ref in [*holding, *self.store.waiting()] if desired.lost(ref)]
                    for ref in dict.fromkeys([*overdue, *orphans]):
                        await self.queue.remind(subjects.key(ref), Wish(reason=Reason.SWEEP))
            if self._edges and self._edges.lingering:
                self._changed.set()
            await asyncio.sleep(_SWEEP)

    async def _reconcile(self, desired: DesiredState, edges: Edges, group: asyncio.TaskGroup) -> None:
        if not self.store.settled() and not self._load_balancers:
            return  # whose addresses are whose is not known yet: what serves, serves on
        await edges.digested()  # what changes meanwhile goes along
        self._load_balancers = desired.load_balancers()
        self._forget_others()
        carried = await edges.write(self._load_balancers)
        await self._let_go(edges)
        for edge, load_balancers in carried:
            self._look(edge, load_balancers, desired, group)
        await edges.remove_unused_addresses()
        metrics.load_balancers.set(len(self._load_balancers))

    def _look_at_book(self) -> None:
        if self.store.needs_adoption():
            self._doubtful.set()
        self._changed.set()

    def _heard(self, key: str, state: bytes | None) -> None:
        """See that there is a state of what is carried, and of nothing else, whoever wrote it or took it."""
        ref = subjects.ref(key)
        said = self._said.get(ref)
        late = state and said and not EdgeState.model_validate_json(state).same(said)
        if late or (ref in self._load_balancers) != bool(state):
            self._settled.pop(ref, None)
            self._changed.set()

    def _forget_others(self) -> None:
        """What is looked at in the background is not told any more, if it has gone meanwhile."""
        known = self._settled.keys() | self._told | self._tries.keys() | self._said.keys()
        for ref in known - self._load_balancers.keys():
            self._settled.pop(ref, None)
            self._said.pop(ref, None)
            self._told.discard(ref)
            self._tries.pop(ref, None)

    def _started(self) -> None:
        """An Envoy is there, or the bus has forgotten: all that is carried is to be looked at."""
        self._settled.clear()
        self._changed.set()

    async def _let_go(self, edges: Edges) -> None:
        """Tell the Services that are carried no longer."""
        self._leaving = (self._leaving | self.states.known()) - self._load_balancers.keys()
        if self._leaving and not await edges.taken():
            raise Unreachable("Envoy does not let go of what it is to serve no longer")
        for ref in sorted(self._leaving):
            await self.states.remove(ref)
            await self.queue.wish(subjects.key(ref), Wish(reason=Reason.EDGE))
            self._leaving.discard(ref)

    def _look(
        self,
        edge: Edge,
        load_balancers: Collection[LoadBalancer],
        desired: DesiredState,
        group: asyncio.TaskGroup,
    ) -> None:
        """See in the background how those stand that have changed."""
        changed = [one for one in load_balancers if self._settled.get(one.ref) != one]
        if changed:
            self._settled |= {one.ref: one for one in changed}
            group.create_task(self._follow(edge, changed, desired), name="edge: look")

    async def _follow(self, edge: Edge, changed: Collection[LoadBalancer], desired: DesiredState) -> None:
        try:
            async for settled in edge.settled(changed):
                ref = settled.load_balancer.ref
                # What has changed once more meanwhile is looked at by another.
                if self._settled.get(ref) is settled.load_balancer:
                    await self._say(ref, settled, desired)
        except WindowboxError as error:
            logger.info("edge: %s", error)
            self._settled = {r: one for r, one in self._settled.items() if one not in changed}
            asyncio.get_running_loop().call_later(1.0, self._changed.set)

    async def _say(self, ref: ObjectRef, settled: Applied, desired: DesiredState) -> None:
        state = _state(settled, desired.lacking(ref.cluster))
        self._said[ref] = state
        new = not state.same(self.states.of(ref))
        if new:
            self._told.discard(ref)  # if it cannot be told now, it will be later
            await self.states.put(ref, state)
        # A former owner may have died before it asked the Service to look.
        if new or ref not in self._told:
            await self.queue.wish(subjects.key(ref), Wish(reason=Reason.EDGE))
            self._told.add(ref)
        if settled.problems:
            self._try_again(ref)
        else:
            self._tries.pop(ref, None)

    def _try_again(self, ref: ObjectRef) -> None:
        """Nobody tells us when a port that was taken is free."""
        if ref in self._retrying:
            return
        self._retrying.add(ref)
        tries = self._tries[ref] = self._tries.get(ref, 0) + 1

        def again() -> None:
            self._retrying.discard(ref)
            self._settled.pop(ref, None)
            self._changed.set()

        asyncio.get_running_loop().call_later(backoff(tries, first=1.0, longest=60.0), again)


async def _reached(ask: Callable[[], Awaitable[T]]) -> T:
    """The answer of what runs Envoys, however long that is away."""
    failures = 0
    while True:
        try:
            return await ask()
        except TransientError as error:
            failures += 1
            pause = backoff(failures, first=0.2, longest=10)
            logger.warning("edge: %s; again in %.1f s", error, pause)
            await asyncio.sleep(pause)


def _state(settled: Applied, lacking: str) -> EdgeState:
    balancer = settled.load_balancer
    names = sorted({e.name for listener in balancer.listeners for e in listener.endpoints})
    return EdgeState(
        uid=balancer.uid,
        digest=balancer.digest,
        since=datetime.now(UTC).isoformat(timespec="milliseconds"),
        problems=dict(settled.problems),
        backends=tuple(names),
        lacking="" if names or not balancer.listeners else lacking,
    )
