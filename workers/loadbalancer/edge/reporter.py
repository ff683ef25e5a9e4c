"""Reports: states of load balancers in the bucket `edges`, and a wish for each Service with a new state."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from bus import subjects
from bus.leases import guard
from bus.messages import Reason, Wish
from bus.outcomes import backoff
from bus.transport.connection import WrongSequence
from bus.workqueue.queue import Queue
from windowbox.errors import WindowboxError
from windowbox.models.loadbalancers import Family, LoadBalancer, family
from windowbox.models.refs import SERVICES, ObjectRef
from workers.loadbalancer.edge.placement import Placement
from workers.loadbalancer.edgestate import MOST_OCCUPIED, EdgeState, States, holder_in
from workers.loadbalancer.envoy.edge import Edge
from workers.loadbalancer.envoy.readiness import Applied
from workers.loadbalancer.envoy.resources import Owner
from workers.loadbalancer.tracked import Changes, LoadBalancers, MergedSets, Tracked

logger = logging.getLogger(__name__)

_RETRY = 1.0
_AT_ONCE = 100
"""States that are written at the same time."""
_MOST_NODES = 5
"""Refused nodes in one state; more are left out."""


class NodeReport(NamedTuple):
    """Why nodes get no traffic, for people."""

    no_backends: Callable[[ObjectRef, Family], str]
    """Why no node of this family takes traffic of a Service."""
    refused: Callable[[], Mapping[str, tuple[str, ...]]]
    """By cluster, its nodes with an address that is refused, and why."""


@dataclass(eq=False, repr=False)
class StateReporter:
    """Observes how Envoy applies load balancers, and reports it, for one term of the lease."""

    _states: States
    _queue: Queue
    _group: asyncio.TaskGroup
    _nodes: NodeReport
    _changed: Callable[[], None]
    _placement: Placement
    served: LoadBalancers = field(default_factory=Tracked, init=False)
    """All load balancers of the edge, as they were written last."""
    refused: set[ObjectRef] = field(default_factory=set, init=False)
    """Those of these with ports that the edge refuses."""
    addresses: MergedSets[ObjectRef, str] = field(default_factory=MergedSets, init=False)
    """Those of all of these."""
    _unserved: Changes[ObjectRef] = field(default_factory=Changes, init=False)
    """Those of these that have changed since `serve`."""
    _unobserved: Changes[ObjectRef] = field(default_factory=Changes, init=False)
    """Those of these that have to be observed, again or for the first time."""
    _refused_nodes: Mapping[str, tuple[str, ...]] = field(default_factory=dict, init=False)
    _observed: dict[ObjectRef, LoadBalancer] = field(default_factory=dict, init=False)
    """Load balancers whose state is known or being observed."""
    _reported: dict[ObjectRef, EdgeState] = field(default_factory=dict, init=False)
    _notified: set[ObjectRef] = field(default_factory=set, init=False)
    """Services that were requeued at least once in this term."""
    _withdrawn: set[ObjectRef] = field(default_factory=set, init=False)
    """Services that are served no longer, and were not requeued since."""
    retrying: set[ObjectRef] = field(default_factory=set, init=False)
    """Services with ports that were not served, and may be by now."""
    _failures: dict[ObjectRef, int] = field(default_factory=dict, init=False)
    _scheduled: set[ObjectRef] = field(default_factory=set, init=False)
    """Services whose retry is scheduled."""

    def serve(self, load_balancers: LoadBalancers) -> None:
        """Report on these load balancers, and stop reporting on all others."""
        self.served = load_balancers
        self._unserved.follow(load_balancers)
        with self._unserved.taken() as changed:
            for ref in changed:
                one = load_balancers.get(ref)
                (self.refused.add if one and one.refused else self.refused.discard)(ref)
                self.addresses.put(ref, one.addresses if one else ())
                if one is None:
                    self._observed.pop(ref, None)
                    self._reported.pop(ref, None)
                    self._notified.discard(ref)
                    self._failures.pop(ref, None)
        self._unobserved.add(changed)

    async def take(self, untaken: Mapping[ObjectRef, LoadBalancer]) -> None:
        """Name this host in the states of load balancers that it is about to serve.

        No other host serves them from here on. What another one has taken meanwhile stays with that.
        """
        balancers = list(untaken.values())
        for begin in range(0, len(balancers), _AT_ONCE):
            await asyncio.gather(*map(self._take, balancers[begin : begin + _AT_ONCE]))

    async def _take(self, balancer: LoadBalancer) -> None:
        ref = balancer.ref
        entry = await self._states.bucket.get(subjects.key(ref))
        if not entry.value:
            # Without a digest, a run that waits for this state keeps waiting.
            state = EdgeState(uid=balancer.uid, digest="", since=_now(), host=self._placement.host)
        elif holder_in(entry.value) in self._placement.hosts - {self._placement.host}:
            return  # its message is on its way
        else:
            state = EdgeState.model_validate_json(entry.value)
            state = state.model_copy(update={"host": self._placement.host})
        with contextlib.suppress(WrongSequence):
            await self._states.put(ref, state, entry.sequence)
            self._placement.taken(ref)

    async def hand_over(self, moving: Mapping[ObjectRef, str]) -> None:
        """Let other hosts serve these. This one serves them no longer."""
        for ref, host in moving.items():
            entry = await self._states.bucket.get(subjects.key(ref))
            if entry.value and holder_in(entry.value) == self._placement.host:
                state = EdgeState.model_validate_json(entry.value).model_copy(update={"host": host})
                with contextlib.suppress(WrongSequence):
                    await self._states.put(ref, state, entry.sequence)

    def withdrawn(self, load_balancers: LoadBalancers) -> bool:
        """Whether Services that no host serves any longer have still to be requeued by this one."""
        known = self._withdrawn | self._placement.unwanted(load_balancers)
        self._withdrawn = {ref for ref in known if ref not in load_balancers}
        return bool(self._withdrawn)

    async def withdraw(self) -> None:
        """Remove the states of load balancers that are served no longer, and requeue their Services."""
        for ref in sorted(self._withdrawn):
            await self._states.remove(ref)
            self._placement.withdrawn(ref)
            await self._queue.wish(subjects.key(ref), Wish(reason=Reason.EDGE))
            self._withdrawn.discard(ref)

    def observe(self, edge_of: Callable[[LoadBalancer], Edge]) -> None:
        """Observe in the background whether Envoys serve the load balancers that have changed."""
        before, self._refused_nodes = self._refused_nodes, self._nodes.refused()
        clusters = {*before, *self._refused_nodes}
        if told := {c for c in clusters if before.get(c) != self._refused_nodes.get(c)}:
            self._unobserved.add(ref for ref in self.served if ref.cluster in told)
        by_edge: dict[Edge, list[LoadBalancer]] = {}
        with self._unobserved.taken() as changed:
            for one in filter(None, map(self.served.get, changed)):
                by_edge.setdefault(edge_of(one), []).append(one)
        for edge, some in by_edge.items():
            self._observed |= {one.ref: one for one in some}
            self._group.create_task(self._follow(edge, some), name="edge: observe")

    def observe_all_again(self) -> None:
        """Observe all load balancers: an Envoy has started, or the bus has lost states."""
        self._observed.clear()
        self._unobserved.add(self.served)
        self._changed()

    def on_state(self, ref: ObjectRef, state: bytes | None) -> None:
        """Report again if the bucket holds another state than the last reported one."""
        reported = self._reported.get(ref)
        if ref not in self.served and self._placement.holder(ref) not in (None, self._placement.host):
            return  # another host reports on it
        outdated = state and reported and not EdgeState.model_validate_json(state).same(reported)
        if outdated or (ref in self.served) != bool(state):
            self._observe_again(ref)

    def _observe_again(self, ref: ObjectRef) -> None:
        self._observed.pop(ref, None)
        self._unobserved.add((ref,))
        self._changed()

    async def _follow(self, edge: Edge, changed: Collection[LoadBalancer]) -> None:
        """Report each of these load balancers as soon as Envoy has applied it, or failed to."""
        try:
            async for applied in edge.wait_applied(changed):
                await asyncio.sleep(0)  # there may be thousands
                ref = applied.load_balancer.ref
                if self._observed.get(ref) is not applied.load_balancer:
                    continue  # it has changed again, and another task observes it
                known = self._states.of(ref)
                state = _state(applied, self._nodes, self._reported.get(ref) or known)
                state = self._reported[ref] = state.model_copy(update={"host": self._placement.host})
                new = not state.same(known)
                if new:
                    self._notified.discard(ref)  # if the Service cannot be requeued now, it will be later
                    await self._states.put(ref, state)
                # The former holder of the lease may have died before it requeued the Service.
                if new or ref not in self._notified:
                    await self._queue.wish(subjects.key(ref), Wish(reason=Reason.EDGE))
                    self._notified.add(ref)
                if not applied.problems:
                    self._failures.pop(ref, None)
                elif ref not in self._scheduled:
                    # No event announces that another process has released a port.
                    self._scheduled.add(ref)
                    failures = self._failures[ref] = self._failures.get(ref, 0) + 1
                    pause = backoff(failures, first=1.0, longest=60.0)
                    asyncio.get_running_loop().call_later(pause, self._retry, ref)
        except Exception as error:  # of the bus and Envoy, or a bug that one object triggers
            if isinstance(error, WindowboxError):
                logger.info("edge: %s", error)
            else:
                guard.note("edge: observe", error, f"{len(changed)} load balancers are observed again")
            for one in changed:
                if self._observed.get(one.ref) is one:
                    del self._observed[one.ref]
                    self._unobserved.add((one.ref,))
            asyncio.get_running_loop().call_later(_RETRY, self._changed)

    def _retry(self, ref: ObjectRef) -> None:
        self._scheduled.discard(ref)
        self.retrying.add(ref)
        self._observe_again(ref)

    async def testify(self, kept: Collection[Owner]) -> None:
        """Publish the addresses that this edge serves, whenever the bus has lost them; never returns.

        Allocations are restored from these: owners of Services may write any address into the status. `kept`
        are the owners by Envoy's files, as the term began.
        """
        from_files = [
            (ObjectRef(one.cluster, SERVICES.id, one.namespace, one.name), one.uid, one.addresses)
            for one in kept
        ]
        missing = asyncio.Event()
        missing.set()
        with contextlib.ExitStack() as stack:
            stack.callback(self._states.bucket.on_regress(missing.set))
            while True:
                await missing.wait()
                missing.clear()
                try:
                    await self._states.bucket.complete.wait()
                    now, host = _now(), self._placement.host
                    served = [(ref, one.uid, one.addresses) for ref, one in self.served.items()]
                    for ref, uid, addresses in served or from_files:
                        if self._states.of(ref) is None:
                            # Without a digest, a run that waits for this state keeps waiting.
                            state = EdgeState(uid=uid, digest="", since=now, addresses=addresses, host=host)
                            await self._states.put(ref, state)
                    await self._states.testify(hosts=self._placement.hosts - {""})
                except WindowboxError as error:
                    logger.info("edge: addresses in use cannot be published: %s", error)
                    await asyncio.sleep(_RETRY)
                    missing.set()


def _state(applied: Applied, nodes: NodeReport, before: EdgeState | None) -> EdgeState:
    balancer = applied.load_balancer
    cluster = balancer.ref.cluster
    names = sorted(_names(balancer))
    unreached = {of: nodes.no_backends(balancer.ref, of) for of in without_endpoints(balancer)}
    occupied = occupied_places(applied, before)
    problems = {**balancer.refused, **applied.problems}
    for place in {place for places in applied.occupied.values() for place in places}:
        others = [a for a, places in occupied.items() if place in places and a not in applied.occupied]
        if others:
            problems[place] += f", and of {f'{len(others)} other addresses' if others[1:] else others[0]}"
    return EdgeState(
        uid=balancer.uid,
        digest=balancer.digest,
        since=_now(),
        problems=problems,
        backends=tuple(names),
        lacking="" if names else next(iter(unreached.values()), ""),
        unreached=unreached if names else {},
        refused_nodes=nodes.refused().get(cluster, ())[:_MOST_NODES],
        addresses=balancer.addresses,
        occupied=occupied,
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _names(balancer: LoadBalancer) -> set[str]:
    """The nodes, or Pods, that get traffic."""
    families = {one.behind for one in balancer.listeners if one.node_port is not None}
    if balancer.refused:
        families |= balancer.targets.keys()
    nodes = {target.name for of in families for target in balancer.targets.get(of, ())}
    return nodes | {pod.name for one in balancer.listeners for pod in one.endpoints}


def without_endpoints(balancer: LoadBalancer) -> list[Family]:
    """The families whose listeners all lack endpoints."""
    asked = {family(listener.address) for listener in balancer.listeners}
    served = {
        family(listener.address)
        for listener in balancer.listeners
        if listener.endpoints or balancer.targets_of(listener)
    }
    return sorted(asked - served)


def occupied_places(applied: Applied, before: EdgeState | None) -> dict[str, tuple[str, ...]]:
    """Addresses that the Service has or had, and their occupied ports, as far as it still asks for these."""
    if not applied.occupied:
        return {}
    balancer = applied.load_balancer
    known = before.occupied if before and before.uid == balancer.uid else {}
    asked = {listener.place for listener in balancer.listeners}
    earlier = {
        address: places
        for address, places in known.items()
        if asked & set(places) and address not in balancer.addresses
    }
    return dict(list({**earlier, **applied.occupied}.items())[-MOST_OCCUPIED:])
