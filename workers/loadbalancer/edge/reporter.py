"""Reports: states of load balancers in the bucket `edges`, and a wish for each Service that has a new one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from bus import subjects
from bus.messages import Reason, Wish
from bus.workqueue.queue import Queue
from windowbox.errors import WindowboxError
from windowbox.models.loadbalancers import Family, LoadBalancer, family
from windowbox.models.refs import ObjectRef
from workers.loadbalancer.edge.retries import Retries
from workers.loadbalancer.edgestate import MOST_OCCUPIED, EdgeState, States
from workers.loadbalancer.envoy.edge import Edge
from workers.loadbalancer.envoy.readiness import Applied

logger = logging.getLogger(__name__)

_RETRY = 1.0
_MOST_NODES = 5
"""More refused nodes than that are not told of."""


class NodeReport(NamedTuple):
    """What there is to tell of the nodes of clusters."""

    no_backends: Callable[[ObjectRef, Family], str]
    """Why none takes traffic of a Service."""
    refused: Callable[[str], tuple[str, ...]]
    """Which have an address that is refused, and why."""


class StateReporter:
    """Observes how Envoy applies load balancers, and reports it, for one term of the lease."""

    def __init__(
        self,
        states: States,
        queue: Queue,
        group: asyncio.TaskGroup,
        nodes: NodeReport,
        changed: Callable[[], None],
    ) -> None:
        self.served: Mapping[ObjectRef, LoadBalancer] = {}
        """All load balancers of the edge, as they were written last."""
        self._states = states
        self._queue = queue
        self._group = group
        self._nodes = nodes
        self._changed = changed
        self._observed: dict[ObjectRef, LoadBalancer] = {}
        """Those whose state is known or being found out."""
        self._reported: dict[ObjectRef, EdgeState] = {}
        self._notified: set[ObjectRef] = set()
        """The Services that were requeued at least once in this term."""
        self._withdrawn: set[ObjectRef] = set()
        """The Services that are served no longer, and were not requeued since."""
        self.retrying: set[ObjectRef] = set()
        """Those with ports that were not served, and may be by now."""
        self._retries = Retries(self._retry)

    def serve(self, load_balancers: Mapping[ObjectRef, LoadBalancer]) -> None:
        """Report on these, and on no others: what is being observed of others is not reported any more."""
        self.served = load_balancers
        for ref in (self._observed.keys() | self._reported.keys() | self._notified) - load_balancers.keys():
            self._observed.pop(ref, None)
            self._reported.pop(ref, None)
            self._notified.discard(ref)
            self._retries.succeeded(ref)

    def withdrawn(self) -> bool:
        """Whether there are Services left to tell that they are served no longer."""
        self._withdrawn = (self._withdrawn | self._states.known()) - self.served.keys()
        return bool(self._withdrawn)

    async def withdraw(self) -> None:
        """Remove the states of load balancers that are served no longer, and requeue their Services."""
        for ref in sorted(self._withdrawn):
            await self._states.remove(ref)
            await self._queue.wish(subjects.key(ref), Wish(reason=Reason.EDGE))
            self._withdrawn.discard(ref)

    def observe(self, edge: Edge, load_balancers: Collection[LoadBalancer]) -> None:
        """Find out in the background whether Envoy serves those that have changed."""
        refused = {
            c: self._nodes.refused(c)[:_MOST_NODES] for c in {one.ref.cluster for one in load_balancers}
        }
        changed = [
            one
            for one in load_balancers
            if not _same(self._observed.get(one.ref), one)
            or (
                (reported := self._reported.get(one.ref))
                and reported.refused_nodes != refused[one.ref.cluster]
            )
        ]
        if changed:
            self._observed |= {one.ref: one for one in changed}
            self._group.create_task(self._follow(edge, changed), name="edge: observe")

    def observe_all_again(self) -> None:
        """An Envoy has started, or the bus has lost states."""
        self._observed.clear()
        self._changed()

    def on_state(self, ref: ObjectRef, state: bytes | None) -> None:
        """See that the bucket holds the states that were reported last and no others, whoever wrote it."""
        reported = self._reported.get(ref)
        outdated = state and reported and not EdgeState.model_validate_json(state).same(reported)
        if outdated or (ref in self.served) != bool(state):
            self._observe_again(ref)

    def _retry(self, ref: ObjectRef) -> None:
        self.retrying.add(ref)
        self._observe_again(ref)

    def _observe_again(self, ref: ObjectRef) -> None:
        self._observed.pop(ref, None)
        self._changed()

    async def _follow(self, edge: Edge, changed: Collection[LoadBalancer]) -> None:
        try:
            async for applied in edge.wait_applied(changed):
                # One that has changed again meanwhile is observed by another task.
                if self._observed.get(applied.load_balancer.ref) is applied.load_balancer:
                    await self._report(applied)
        except WindowboxError as error:
            logger.info("edge: %s", error)
            self._observed = {ref: one for ref, one in self._observed.items() if one not in changed}
            asyncio.get_running_loop().call_later(_RETRY, self._changed)

    async def _report(self, applied: Applied) -> None:
        ref = applied.load_balancer.ref
        before = self._reported.get(ref) or self._states.of(ref)
        state = self._reported[ref] = _state(applied, self._nodes, before)
        new = not state.same(self._states.of(ref))
        if new:
            self._notified.discard(ref)  # if the Service cannot be requeued now, it will be later
            await self._states.put(ref, state)
        # The holder of the lease before may have died before it requeued the Service.
        if new or ref not in self._notified:
            await self._queue.wish(subjects.key(ref), Wish(reason=Reason.EDGE))
            self._notified.add(ref)
        if applied.problems:
            self._retries.failed(ref)  # no event tells when a port that another process holds is free
        else:
            self._retries.succeeded(ref)


def _same(observed: LoadBalancer | None, wanted: LoadBalancer) -> bool:
    # Of a thousand nearly all are the same objects, and comparing those costs ten times as much.
    return observed is wanted or observed == wanted


def _state(applied: Applied, nodes: NodeReport, before: EdgeState | None) -> EdgeState:
    balancer = applied.load_balancer
    cluster = balancer.ref.cluster
    names = sorted({e.name for listener in balancer.listeners for e in listener.endpoints})
    unreached = {of: nodes.no_backends(balancer.ref, of) for of in without_endpoints(balancer)}
    occupied = occupied_places(applied, before)
    return EdgeState(
        uid=balancer.uid,
        digest=balancer.digest,
        since=datetime.now(UTC).isoformat(timespec="milliseconds"),
        problems=_with_others(applied, occupied),
        backends=tuple(names),
        lacking="" if names else next(iter(unreached.values()), ""),
        unreached=unreached if names else {},
        refused_nodes=nodes.refused(cluster)[:_MOST_NODES],
        addresses=balancer.addresses,
        occupied=occupied,
    )


def without_endpoints(balancer: LoadBalancer) -> list[Family]:
    """The families of whose listeners none leads anywhere."""
    asked = {family(listener.address) for listener in balancer.listeners}
    served = {family(listener.address) for listener in balancer.listeners if listener.endpoints}
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


def _with_others(applied: Applied, occupied: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """The problems of ports; of an occupied one, on how many other addresses it is occupied, too."""
    problems = dict(applied.problems)
    for place in {place for places in applied.occupied.values() for place in places}:
        others = [a for a, places in occupied.items() if place in places and a not in applied.occupied]
        if others:
            problems[place] += (
                f", and of {len(others)} other addresses" if others[1:] else f", and of {others[0]}"
            )
    return problems
