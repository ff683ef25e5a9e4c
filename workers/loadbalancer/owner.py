"""The owner of the edges: sees to it that Envoy is what the bus says it ought to be."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from bus import questions, subjects
from bus.connection import Bus
from bus.messages import Wish
from bus.pool import backoff
from bus.queue import Queue
from bus.registry import MachinePlace, Registry
from windowbox.clients.clusters import Clusters
from windowbox.clients.envoy import docker_boxes
from windowbox.clients.envoy.attachments import Attachment
from windowbox.clients.envoy.edge import Edge
from windowbox.clients.envoy.settling import Settled
from windowbox.errors import TransientError, Unreachable, WindowboxError
from windowbox.models.lbsettings import LoadBalancerSettings
from windowbox.models.loadbalancers import LoadBalancer
from windowbox.models.refs import ObjectRef
from windowbox.telemetry import metrics
from workers.loadbalancer import details, wanted
from workers.loadbalancer.adoption import Adoption
from workers.loadbalancer.book import Book
from workers.loadbalancer.picture import Picture, Sight
from workers.loadbalancer.routes import Machines
from workers.loadbalancer.states import EdgeState, States

logger = logging.getLogger(__name__)

SHARED = "edge"
"""The name of the Envoy that all Services share."""

_PATIENCE = 30.0
"""Seconds that a new owner waits to hear of all clusters, before it takes what it does not see for gone."""
_SWEEP = 60.0
_ADOPT_AGAIN = 5.0


@dataclass
class Kept:
    """An edge, and what keeps it running."""

    edge: Edge
    keeping: asyncio.Task[None]
    routes: Mapping[str, str] | None = None
    """Those that it was given; None if that is not known."""


@dataclass
class Owner:
    """Owns the edges of one host."""

    bus: Bus
    clusters: Clusters
    registry: Registry
    book: Book
    states: States
    attachment: Attachment
    settings: LoadBalancerSettings
    queue: Queue
    machines: MachinePlace | None = None
    """Where the machines of the runtime cluster are, should its nodes run in Pods."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _edges: dict[str, Kept] = field(default_factory=dict)
    _settled: dict[ObjectRef, LoadBalancer] = field(default_factory=dict)
    _tries: dict[ObjectRef, int] = field(default_factory=dict)
    _retrying: set[ObjectRef] = field(default_factory=set)
    _picture: Picture = field(default_factory=dict)
    _adopted: bool = False

    def __post_init__(self) -> None:
        self.registry.on_change(self._changed.set)
        self.book.on_change(self._changed.set)

    def describe(self) -> dict[str, object]:
        """What `status` shows of the edges."""
        return {"owned": sorted(self._edges), "load balancers": len(self._picture)}

    async def run(self) -> None:
        """Own them until cancelled. For the holder of the lease `edge`. Envoy goes on without us."""
        sight = Sight(self.bus, self.registry, self.book, self.settings, self._changed.set)
        machines = Machines(self.bus, self.registry, self._changed.set, self.machines)
        self._settled, self._tries, self._picture = {}, {}, {}
        self._adopted = False
        answering = questions.answering(self.bus, questions.EDGE, self._answer)
        async with answering, asyncio.TaskGroup() as group:
            for name, task in {**sight.tasks, "machines": machines.run}.items():
                group.create_task(task(), name=f"edge: {name}")
            try:
                await self._begin(sight)
                await machines.complete()
                group.create_task(self._sweep(sight), name="edge: sweep")
                await self._serve(sight, machines, group)
            finally:
                for name in list(self._edges):
                    self._edges.pop(name).keeping.cancel()

    async def _answer(self, question: bytes) -> bytes:
        running = [kept.edge for kept in self._edges.values() if kept.edge.running.is_set()]
        return await details.told(question, running, self._picture, self.book.usage())

    async def _begin(self, sight: Sight) -> None:
        """Learn all that is known, so that nothing that serves is taken for gone."""
        await sight.complete()
        await self.states.bucket.complete.wait()
        serving = {ref.cluster for ref in self.states.known()}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                while sight.unheard() & serving:
                    self._changed.clear()
                    await self._changed.wait()

    async def _serve(self, sight: Sight, machines: Machines, group: asyncio.TaskGroup) -> None:
        failures = 0
        adoption = Adoption(self.bus, self.book, self.clusters, self.registry, self.settings)
        while True:
            self._changed.clear()
            try:
                await self._adopt(adoption)
                await self._bring_about(sight, group)
                await self._route(machines.routes(sight.backends()))
                failures = 0
            except WindowboxError as error:
                failures += 1
                logger.warning("edge: %s; again in %.1f s", error, backoff(failures, first=0.2, longest=10))
                asyncio.get_running_loop().call_later(
                    backoff(failures, first=0.2, longest=10), self._changed.set
                )
            await self._changed.wait()

    async def _adopt(self, adoption: Adoption) -> None:
        """Learn which addresses are in use: at the beginning, and when the bus has forgotten it."""
        if self._adopted and not self.book.needs_adoption():
            return
        try:
            for ref in await adoption.adopt():
                await self.queue.wish(subjects.key(ref), Wish(reason="address"))
            self._adopted = True
        except TransientError as error:
            if not self.book.settled():
                raise
            # What the book says is most likely true; whoever serves must not wait.
            logger.warning("%s", error)
            asyncio.get_running_loop().call_later(_ADOPT_AGAIN, self._changed.set)

    async def _sweep(self, sight: Sight) -> None:
        """Now and then look for addresses that nobody has any more, and for those who wait in vain."""
        while True:
            with contextlib.suppress(WindowboxError):
                if self.book.settled():
                    now = datetime.now(UTC).timestamp()
                    overdue = [kept.ref for kept in self.book.expired(now)]
                    holding = [holder.ref for _, holder in self.book.holders() if not holder.until]
                    orphans = [ref for ref in [*holding, *self.book.waiting()] if sight.lost(ref)]
                    for ref in dict.fromkeys([*overdue, *orphans, *self.book.servable()]):
                        await self.queue.remind(subjects.key(ref), Wish(reason="sweep"))
            await asyncio.sleep(_SWEEP)

    async def _bring_about(self, sight: Sight, group: asyncio.TaskGroup) -> None:
        if not self.book.settled() and not self._picture:
            return  # whose addresses are whose is not known yet: what serves, serves on
        self._picture = picture = sight.picture()
        edges = await self._grouped(picture)
        for name, load_balancers in edges.items():
            kept = self._edges.get(name) or self._keep(name, self._labels(load_balancers), group)
            await kept.edge.write(load_balancers)
        await self._let_go(picture, edges)
        for name, load_balancers in edges.items():
            self._look(self._edges[name].edge, load_balancers, sight, group)
        metrics.load_balancers.set(len(picture))

    async def _route(self, routes: Mapping[str, str]) -> None:
        """Have the edges reach nodes that run in Pods."""
        for kept in self._edges.values():
            if kept.routes != routes:
                await kept.edge.route(routes)
                kept.routes = routes

    async def _grouped(self, picture: Picture) -> dict[str, list[LoadBalancer]]:
        """Which Envoy carries which load balancers."""
        if not self._isolated:
            # Where nobody has ever asked for a load balancer, no Envoy need run.
            needed = picture or self._edges or SHARED in await self.attachment.names()
            return {SHARED: list(picture.values())} if needed else {}
        return {wanted.box_name(balancer.uid): [balancer] for balancer in picture.values()}

    @property
    def _isolated(self) -> bool:
        # Published ports belong to one container: shared, each new Service would cut all others.
        return self.settings.isolation or self.attachment.fixed_ports

    def _labels(self, load_balancers: Sequence[LoadBalancer]) -> dict[str, str] | None:
        if not self._isolated:
            return None
        return docker_boxes.service_labels(load_balancers[0].ref, self.settings.cluster_name)

    def _keep(self, name: str, labels: Mapping[str, str] | None, group: asyncio.TaskGroup) -> Kept:
        edge = Edge(self.attachment, name, labels=labels, on_start=self._started)
        keeping = group.create_task(edge.keep(), name=f"edge: keep {name}")
        self._edges[name] = Kept(edge, keeping)
        if not self.attachment.fixed_ports:  # two could not have the same ports
            group.create_task(_renew(edge), name=f"edge: renew {name}")
        return self._edges[name]

    def _started(self) -> None:
        """An Envoy is there: all that it carries is to be looked at."""
        self._settled.clear()
        for kept in self._edges.values():
            kept.routes = None
        self._changed.set()

    async def _let_go(self, picture: Picture, edges: Mapping[str, object]) -> None:
        """Tell the Services that are carried no longer."""
        for name in self._edges.keys() - edges.keys():
            kept = self._edges.pop(name)
            kept.keeping.cancel()
            await kept.edge.end()
        gone = self.states.known() - picture.keys()
        if gone and (shared := self._edges.get(SHARED)) and not await shared.edge.taken():
            raise Unreachable("Envoy does not let go of what it is to serve no longer")
        for ref in gone:
            self._settled.pop(ref, None)
            await self.states.remove(ref)
            await self.queue.wish(subjects.key(ref), Wish(reason="edge"))

    def _look(
        self, edge: Edge, load_balancers: Collection[LoadBalancer], sight: Sight, group: asyncio.TaskGroup
    ) -> None:
        """See in the background how those stand that have changed."""
        changed = [one for one in load_balancers if self._settled.get(one.ref) != one]
        if changed:
            self._settled |= {one.ref: one for one in changed}
            group.create_task(self._follow(edge, changed, sight), name="edge: look")

    async def _follow(self, edge: Edge, changed: Collection[LoadBalancer], sight: Sight) -> None:
        try:
            async for settled in edge.settled(changed):
                ref = settled.load_balancer.ref
                # What has changed once more meanwhile is looked at by another.
                if self._settled.get(ref) is settled.load_balancer:
                    await self._say(ref, settled, sight)
        except WindowboxError as error:
            logger.info("edge: %s", error)
            self._settled = {r: one for r, one in self._settled.items() if one not in changed}
            asyncio.get_running_loop().call_later(1.0, self._changed.set)

    async def _say(self, ref: ObjectRef, settled: Settled, sight: Sight) -> None:
        state = _state(settled, sight.lacking(ref.cluster))
        if not state.same(self.states.of(ref)):
            await self.states.put(ref, state)
            await self.queue.wish(subjects.key(ref), Wish(reason="edge"))
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


async def _renew(edge: Edge) -> None:
    """Have a new Envoy in the place of one that an earlier version of windowbox, or of Envoy, has left."""
    with contextlib.suppress(WindowboxError):
        await edge.running.wait()
        if await edge.outdated():
            logger.info("%s: Envoy is not the one we would start; another takes over", edge.name)
            await edge.replace()


def _state(settled: Settled, lacking: str) -> EdgeState:
    balancer = settled.load_balancer
    names = sorted({e.name for listener in balancer.listeners for e in listener.endpoints})
    return EdgeState(
        uid=balancer.uid,
        digest=wanted.digest(balancer),
        since=datetime.now(UTC).isoformat(timespec="milliseconds"),
        problems=dict(settled.problems),
        backends=tuple(names),
        lacking="" if names or not balancer.listeners else lacking,
    )
