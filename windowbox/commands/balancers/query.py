"""Load balancers as the bus knows them, and as the owner of their edge sees them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from bus import consumers, streams, subjects
from bus.connection import ApiError, Bus
from bus.messages import Announcement, EventIntent, RunRecord
from windowbox.errors import Missing
from windowbox.models.lbsettings import LoadBalancerSettings
from windowbox.models.objects import Object
from windowbox.models.refs import RUNTIME, SERVICES, ObjectRef
from workers.edge import status
from workers.edge.status import EdgeStatus, LoadBalancerStatus
from workers.loadbalancer.edgestate import EdgeState
from workers.loadbalancer.service import statuses
from workers.loadbalancer.spec import fields, listeners, selection
from workers.loadbalancer.spec.demands import Demand, demand_in

State = Literal["serving", "in part", "drained", "not served", "waiting", "leaving"]

_STREAM_NOT_FOUND = 10059
_NO_RUN = "no run was noted yet: `windowbox status` shows whether a worker of pool loadbalancer is there"
_NO_OWNER = "no worker owns the edge, so nobody knows: see `windowbox status`"

_POOL = "loadbalancer"


@dataclass(frozen=True)
class Balancer:
    """One Service of type LoadBalancer, and all that is known of it."""

    ref: ObjectRef
    service: Object
    demand: Demand
    edge: EdgeState | None
    told: LoadBalancerStatus | None
    """What Envoy says; None if nobody can be asked, or it is not carried."""
    last: RunRecord | None
    """Its last run; only looked up where something is amiss."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """Those that its status shows."""
        return statuses.addresses(self.service)

    @property
    def state(self) -> State:
        if self.service.deleting:
            return "leaving"
        if self.edge is None:
            return "waiting"
        if self.demand.drained:
            return "drained"
        if not self.edge.backends or len(self.edge.problems) >= len(self.demand.ports):
            return "not served"
        if self._trouble:
            return "not served"
        return "in part" if self.edge.problems or self.demand.refusals else "serving"

    @property
    def why(self) -> str:
        """What keeps it from serving, or some of its ports, in plain words."""
        refused = [refusal.note for refusal in self.demand.refusals]
        match self.state:
            case "serving":
                return ""
            case "drained":
                return "takes no new connections; `windowbox lb drain --undo` ends that"
            case "in part" | "not served":
                problems = self.edge.problems if self.edge else {}
                lacking = [self.edge.lacking] if self.edge and self.edge.lacking else []
                lacking += [self._trouble] if self._trouble else []
                said = [*lacking, *(f"{place}: {why}" for place, why in sorted(problems.items())), *refused]
                return "; ".join(said)
            case "waiting" | "leaving":
                return self._last_word() or "; ".join(refused) or _NO_RUN

    @property
    def _trouble(self) -> str:
        """Why nobody answers though there are backends."""
        if self.told and self.told.vacant:
            return "no Pod behind it is ready, so clients are turned away at once"
        if self.told and self.told.backends and not self.told.healthy:
            return "none of its backends is healthy: `windowbox lb show` tells why"
        return ""

    def _last_word(self) -> str:
        return (self.last.note or self.last.outcome) if self.last else ""

    def as_json(self) -> dict[str, Any]:
        told = self.told
        return {
            "cluster": self.ref.cluster,
            "namespace": self.ref.namespace,
            "name": self.ref.name,
            "addresses": list(self.addresses),
            "ports": list(self.demand.places),
            "backends": {"healthy": told.healthy, "all": told.backends} if told else None,
            "connections": {"open": told.open, "total": told.total} if told else None,
            "since": self.edge.since if self.edge else None,
            "state": self.state,
            "why": self.why,
        }


@dataclass(frozen=True)
class Look:
    """All load balancers at one moment."""

    balancers: list[Balancer]
    edge: EdgeStatus | None
    """None if nobody owns an edge."""

    def without_owner(self) -> str:
        """What to tell people where nobody can be asked; nothing if somebody could."""
        return "" if self.edge else _NO_OWNER

    def left(self, balancer: Balancer) -> int:
        """How many connections go on where no new ones are taken."""
        names = {
            # As statistics spell the names of its former listeners.
            f"{port.protocol.lower()}_{address.replace(':', '_')}_{port.port}"
            for address in balancer.addresses
            for port in balancer.demand.ports
        }
        leaving = self.edge.leaving if self.edge else {}
        return sum(count for name, count in leaving.items() if name in names)


@dataclass(frozen=True)
class Told:
    """An Event that a run asked for."""

    at: datetime
    event: EventIntent


async def look(bus: Bus, settings: LoadBalancerSettings, only: ObjectRef | None = None) -> Look:
    """All load balancers, or one, as far as the bus knows."""
    try:
        return await _look(bus, settings, only)
    except ApiError as error:
        if error.code != _STREAM_NOT_FOUND:
            raise
        raise Missing(
            "the bus holds nothing yet: no watcher has ever mirrored a cluster to it. Start `windowbox watch`"
        ) from error


async def _look(bus: Bus, settings: LoadBalancerSettings, only: ObjectRef | None) -> Look:
    edge = await status.query(bus, subjects.key(only) if only else None)
    states = {key: state async for key, state in _states(bus)}
    balancers = [
        await _balancer(bus, _Seen(ref, service, demand_in(ref.cluster, service, settings)), states, edge)
        async for ref, service in _services(bus, only)
        if selection.wants(service, settings.classes) or selection.needs_cleanup(service)
    ]
    return Look(sorted(balancers, key=lambda one: one.ref), edge)


def the_only(found: Look, ref: ObjectRef) -> Balancer:
    """The one that was looked for; Missing if it is not there, or not ours."""
    if not found.balancers:
        where = "" if ref.cluster == RUNTIME else f" of cluster {ref.cluster}"
        raise Missing(
            f"no load balancer of Service {ref.namespace}/{ref.name}{where} is known: `windowbox lb list` "
            "shows all. It has to be of type LoadBalancer, and of no class or one of ours"
        )
    return found.balancers[0]


async def runs(bus: Bus, ref: ObjectRef) -> list[RunRecord]:
    """The runs that the journal still holds, oldest first."""
    filters = [subjects.run(_POOL, subjects.key(ref))]
    noted = consumers.snapshot(bus, streams.JOURNAL, filters, history=True)
    return [RunRecord.model_validate_json(stored.data) async for stored in noted]


def events(found: Collection[RunRecord]) -> list[Told]:
    """What people were told of it."""
    return [
        Told(run.started.astimezone(UTC), EventIntent.model_validate(event))
        for run in found
        for call in run.calls
        if call.door == "report" and not call.error
        for event in call.request.get("events", ())
    ]


def drained(asked: Demand, state: EdgeState | None) -> bool:
    """Whether the edge carries it as one that takes nothing new."""
    nothing = listeners.digest(asked.uid, ())
    return state is not None and (state.uid, state.digest) == (asked.uid, nothing)


async def _services(bus: Bus, only: ObjectRef | None) -> AsyncIterator[tuple[ObjectRef, Object]]:
    subject = subjects.seen(only) if only else subjects.seen_kind("*", SERVICES.id)
    async for stored in consumers.snapshot(bus, streams.OBJECTS, [subject]):
        seen = Announcement(stored)
        if not seen.gone and not seen.omitted:
            yield subjects.ref(subjects.without("object", stored.subject)), seen.object()


async def _states(bus: Bus) -> AsyncIterator[tuple[str, EdgeState]]:
    bucket = streams.EDGES
    async for stored in consumers.snapshot(bus, f"KV_{bucket}", [subjects.entry(bucket, ">")]):
        if stored.data:
            key = subjects.without(f"$KV.{bucket}", stored.subject)
            yield key, EdgeState.model_validate_json(stored.data)


class _Seen(NamedTuple):
    """A Service as the bus has it."""

    ref: ObjectRef
    service: Object
    demand: Demand


async def _balancer(
    bus: Bus, seen: _Seen, states: Mapping[str, EdgeState], edge: EdgeStatus | None
) -> Balancer:
    ref, service, asked = seen
    key = subjects.key(ref)
    state = states.get(key)
    mine = state if state and state.uid == fields.text(service.metadata.get("uid")) else None
    found = Balancer(ref, service, asked, mine, edge.of(key) if edge else None, None)
    if found.state not in ("waiting", "leaving"):
        return found
    last = await bus.last(streams.JOURNAL, subjects.run(_POOL, key))
    noted = RunRecord.model_validate_json(last.data) if last else None
    return Balancer(ref, service, found.demand, mine, found.told, noted)
