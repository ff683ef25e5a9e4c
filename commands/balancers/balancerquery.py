"""The state of load balancers, from the bus and from the edge controller."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

from bus import streams, subjects
from bus.clusters.registry import members
from bus.messages import Announcement, EventIntent, RunRecord
from bus.transport import consumers
from bus.transport.connection import ApiError, Bus
from windowbox.errors import Missing
from windowbox.models.objects import Object
from windowbox.models.refs import RUNTIME, SERVICES, ObjectRef
from windowbox.settings.lbsettings import LoadBalancerSettings
from workers.loadbalancer.edge import edgestatus
from workers.loadbalancer.edge.edgestatus import EdgeStatus, LoadBalancerStatus
from workers.loadbalancer.edgestate import EdgeState, is_testimony
from workers.loadbalancer.service import servicestatus
from workers.loadbalancer.spec import cloudterms, fields, listeners, selection
from workers.loadbalancer.spec.demands import Demand, demand_in

State = Literal["serving", "in part", "drained", "not served", "waiting", "leaving"]

_STREAM_NOT_FOUND = 10059
_NO_RUN = "no run is recorded yet: `windowbox status` shows whether a worker serves the pool loadbalancer"
_NO_CONTROLLER = "no worker holds the lease of the edge, so Envoy cannot be queried: see `windowbox status`"

_POOL = "loadbalancer"


@dataclass(frozen=True)
class Balancer:
    """One Service of type LoadBalancer, and its state."""

    ref: ObjectRef
    service: Object
    demand: Demand
    edge: EdgeState | None
    envoy: LoadBalancerStatus | None
    """As Envoy reports it; None without an edge controller, or if the edge does not serve it."""
    last: RunRecord | None
    """Its last run; read only while it waits or leaves."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses in its status, or behind the host name there."""
        behind = self.edge.addresses if self.hostname and self.edge else ()
        return behind or servicestatus.addresses(self.service)

    @property
    def hostname(self) -> str:
        """The host name in its status, as some clouds show it."""
        return servicestatus.hostname(self.service)

    @property
    def host(self) -> str:
        """The host that serves it, if several share the addresses."""
        return self.edge.host if self.edge else ""

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
        if self._outage:
            return "not served"
        return "in part" if self.edge.problems or self.demand.refusals else "serving"

    @property
    def why(self) -> str:
        """Why it does not serve, or not on all ports."""
        refused = [refusal.note for refusal in self.demand.refusals]
        match self.state:
            case "serving":
                return ""
            case "drained":
                return "takes no new connections; `windowbox lb drain --undo` ends that"
            case "in part" | "not served":
                problems = self.edge.problems if self.edge else {}
                lacking = [self.edge.lacking] if self.edge and self.edge.lacking else []
                lacking += [self._outage] if self._outage else []
                notes = [*lacking, *(f"{place}: {why}" for place, why in sorted(problems.items())), *refused]
                return "; ".join(notes)
            case "waiting" | "leaving":
                last = self.last and (self.last.note or self.last.outcome)
                return last or "; ".join(refused) or _NO_RUN

    @property
    def _outage(self) -> str:
        """Why connections fail although there are backends."""
        if self.envoy and self.envoy.vacant:
            return "none of its Pods is ready, so connections are closed at once"
        if self.envoy and self.envoy.backends and not self.envoy.healthy:
            return "none of its backends is healthy: `windowbox lb show` shows why"
        return ""

    def as_json(self) -> dict[str, Any]:
        envoy = self.envoy
        return {
            "cluster": self.ref.cluster,
            "namespace": self.ref.namespace,
            "name": self.ref.name,
            "addresses": list(self.addresses),
            "hostname": self.hostname or None,
            "host": self.host or None,
            "ports": list(self.demand.places),
            "backends": {"healthy": envoy.healthy, "all": envoy.backends} if envoy else None,
            "connections": {"open": envoy.open, "total": envoy.total} if envoy else None,
            "since": self.edge.since if self.edge else None,
            "state": self.state,
            "why": self.why,
        }


@dataclass(frozen=True)
class Snapshot:
    """All load balancers at one moment."""

    balancers: list[Balancer]
    edge: EdgeStatus | None
    """None if there is no edge controller."""

    def missing_controller(self) -> str:
        """A note for people if no edge controller answered; empty if one did."""
        return "" if self.edge else _NO_CONTROLLER

    def draining_connections(self, balancer: Balancer) -> int:
        """Open connections that its removed listeners still serve."""
        names = {
            # Envoy's statistics spell the names of listeners so.
            f"{port.protocol.lower()}_{address.replace(':', '_')}_{port.port}"
            for address in balancer.addresses
            for port in balancer.demand.ports
        }
        leaving = self.edge.leaving if self.edge else {}
        return sum(count for name, count in leaving.items() if name in names)


@dataclass(frozen=True)
class ReportedEvent:
    """An Event that a run reported."""

    at: datetime
    event: EventIntent


async def load_balancers(bus: Bus, settings: LoadBalancerSettings, only: ObjectRef | None = None) -> Snapshot:
    """All load balancers, or one, from the bus."""
    bucket, states = streams.EDGES, dict[str, EdgeState]()
    mirrored = subjects.seen(only) if only else subjects.seen_kind("*", SERVICES.id)
    balancers = []
    try:
        edge = await edgestatus.query(bus, subjects.key(only) if only else None)
        async for stored in consumers.snapshot(bus, f"KV_{bucket}", [subjects.entry(bucket, ">")]):
            key = subjects.without(f"$KV.{bucket}", stored.subject)
            if stored.data and not is_testimony(key):
                states[key] = EdgeState.model_validate_json(stored.data)
        clusters = await members(bus)
        async for stored in consumers.snapshot(bus, streams.OBJECTS, [mirrored]):
            seen = Announcement(stored)
            if seen.gone or seen.omitted:
                continue
            service, ref = seen.object(), subjects.ref(subjects.without("object", stored.subject))
            cloud = clusters[ref.cluster].cloud if ref.cluster in clusters else None
            classes = (*settings.classes, *cloudterms.classes(cloud))
            if not selection.is_ours(service, classes) and not selection.needs_cleanup(service):
                continue
            key, demand = subjects.key(ref), demand_in(ref.cluster, service, settings, cloud)
            state = states.get(key)
            # The bus may still hold the state of a former Service of the same name.
            mine = state if state and state.uid == fields.text(service.metadata.get("uid")) else None
            found = Balancer(ref, service, demand, mine, edge.of(key) if edge else None, None)
            if found.state in ("waiting", "leaving"):
                last = await bus.last(streams.JOURNAL, subjects.run(_POOL, key))
                found = replace(found, last=RunRecord.model_validate_json(last.data) if last else None)
            balancers.append(found)
    except ApiError as error:
        if error.code != _STREAM_NOT_FOUND:
            raise
        raise Missing(
            "the bus holds nothing yet: no watcher has ever mirrored a cluster to it. Start `windowbox watch`"
        ) from error
    return Snapshot(sorted(balancers, key=lambda one: one.ref), edge)


def single(found: Snapshot, ref: ObjectRef) -> Balancer:
    """The requested load balancer; Missing if it does not exist, or is not ours."""
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


def events(found: Collection[RunRecord]) -> list[ReportedEvent]:
    """The Events that these runs reported."""
    return [
        ReportedEvent(run.started.astimezone(UTC), EventIntent.model_validate(event))
        for run in found
        for call in run.calls
        if call.door == "report" and not call.error
        for event in call.request.get("events", ())
    ]


def drained(demand: Demand, state: EdgeState | None) -> bool:
    """Whether the edge has drained it."""
    nothing = listeners.digest(demand.uid, ())
    return state is not None and (state.uid, state.digest) == (demand.uid, nothing)
