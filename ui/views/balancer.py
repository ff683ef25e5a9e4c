"""One load balancer: its ports and backends, the names that lead to it, its latest Events."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bus import subjects
from commands import formatting
from commands.balancers import balancerquery
from commands.balancers.balancerquery import ReportedEvent, Snapshot
from commands.balancers.balancertexts import REASONS
from ui.rates import Meter
from ui.view import Params, Source, View
from ui.views import balancers
from ui.views.balancers import Flow, Pointing, Row
from windowbox.models.refs import SERVICES, ObjectRef
from workers.loadbalancer.edge.edgestatus import ListenerStatus
from workers.loadbalancer.envoy.admin import Health

_MOST_BACKENDS = 200
_MOST_EVENTS = 10


@dataclass(frozen=True)
class Backend:
    """An endpoint, as Envoy sees it."""

    name: str
    address: str
    healthy: bool
    why: str


@dataclass(frozen=True)
class Place:
    """An address and port for clients."""

    address: str
    flow: Flow
    turned_away: int
    flows: str
    """What its traffic is counted in."""
    healthy: int
    backends: tuple[Backend, ...]
    """Those that are not healthy come first."""
    omitted: int


@dataclass(frozen=True)
class OneBalancer:
    """The model of the view."""

    row: Row
    places: tuple[Place, ...]
    unserved: str
    """Why there are no places; empty if there are."""
    draining: int
    """Open connections that its removed listeners still serve."""
    events: tuple[ReportedEvent, ...]
    """The latest one first."""
    envoys: tuple[str, ...]
    missing: str


def model(
    found: Snapshot, ref: ObjectRef, events: Sequence[ReportedEvent], pointing: Pointing, meter: Meter,
    now: float,
) -> OneBalancer:  # fmt: skip
    """Missing if there is no such load balancer."""
    one = balancerquery.single(found, ref)
    status = one.envoy.places if one.envoy else ()
    places = tuple(place(subjects.key(ref), each, meter, now) for each in status)
    unserved = "accepts no new connections" if one.demand.drained else "not served yet"
    return OneBalancer(
        balancers.row(one, pointing, meter, now), places, "" if places else unserved,
        found.draining_connections(one), tuple(reversed(events[-_MOST_EVENTS:])),
        tuple(formatting.envoy_lines(found.edge, one.host)), found.missing_controller(),
    )  # fmt: skip


def place(key: str, one: ListenerStatus, meter: Meter, now: float) -> Place:
    at = f"{endpoint(one.address, one.port)}/{one.protocol}"
    ends = backends(one.backends)
    return Place(
        at, balancers.flow_of(meter, f"{key} {at}", one.open, (one.total, one.received, one.sent), now),
        one.turned_away, "connections" if one.protocol == "TCP" else "flows",
        sum(end.healthy for end in ends), tuple(ends[:_MOST_BACKENDS]), max(len(ends) - _MOST_BACKENDS, 0),
    )  # fmt: skip


def backends(healths: Iterable[Health]) -> list[Backend]:
    """Those that are not healthy come first, each with the reasons."""
    return sorted(
        (
            Backend(
                one.name, endpoint(one.address, one.port), one.healthy,
                "" if one.healthy
                else " and ".join(REASONS.get(reason, reason) for reason in one.reasons) or "unhealthy",
            )
            for one in healths
        ),
        key=lambda one: (one.healthy, one.name, one.address),
    )  # fmt: skip


def endpoint(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def ref_of(params: Params) -> ObjectRef:
    return ObjectRef(params["cluster"], SERVICES.id, params["namespace"], params["name"])


def heard(params: Params) -> tuple[str, ...]:
    ref = ref_of(params)
    return subjects.seen(ref), subjects.run("loadbalancer", subjects.key(ref)), *balancers.heard(params)[1:]


async def read(source: Source, params: Params) -> dict[str, Any]:
    ref, bus = ref_of(params), source.mirror.bus
    found = await balancerquery.load_balancers(bus, source.loadbalancer, ref)
    balancerquery.single(found, ref)
    events = balancerquery.events(await balancerquery.runs(bus, ref))
    shown = model(found, ref, events, balancers.pointing_in(source.mirror), source.meter, time.time())
    return {"model": shown}


VIEW = View(
    name="balancer",
    title="Load balancer",
    about="Each port, each backend, and what passes",
    read=read,
    heard=heard,
    interval=balancers.INTERVAL,
    path=("cluster", "namespace", "name"),
    listed=False,
)
