"""Load balancers: where each listens, what is behind it, how much passes, and which names lead to it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bus import streams, subjects
from commands import formatting
from commands.balancers import balancerquery
from commands.balancers.balancerquery import Balancer, Snapshot, State
from ui.mirror import Mirror, Pointer
from ui.rates import Meter
from ui.view import Params, Source, View
from windowbox.models.refs import DNSRECORDS, SERVICES, ObjectRef
from workers.loadbalancer.edge.edgestatus import RangeStatus

TONES: Mapping[State, str] = {
    "not served": "bad", "in part": "late", "waiting": "late", "leaving": "late", "drained": "late",
    "serving": "good",
}  # fmt: skip
_ORDER: tuple[State, ...] = ("not served", "in part", "waiting", "leaving", "drained", "serving")
_MOST = 200
_MOST_RECORDS = 50
INTERVAL = 3.0
"""Seconds after which Envoy's counters are asked for again: no event says that traffic has passed."""


@dataclass(frozen=True)
class Record:
    """A DNSRecord that points to an address or host name of a load balancer."""

    ref: ObjectRef
    pointer: Pointer
    target: str


@dataclass(frozen=True)
class Flow:
    """What passes: now, and per second."""

    open: int
    total: int
    begun: float | None
    """Connections per second; None until it is known."""
    received: float | None
    """Bytes per second from clients."""
    sent: float | None


@dataclass(frozen=True)
class Row:
    """One load balancer."""

    ref: ObjectRef
    state: State
    tone: str
    why: str
    since: float
    """Since when the edge serves it as it does; 0 if it does not."""
    addresses: tuple[str, ...]
    hostname: str
    host: str
    ports: tuple[str, ...]
    backends: tuple[int, int] | None
    """How many are healthy, and how many there are; None if no edge says it."""
    flow: Flow | None
    records: tuple[Record, ...]


@dataclass(frozen=True)
class Balancers:
    """The model of the view."""

    rows: tuple[Row, ...]
    omitted: int
    """Load balancers beyond those that are shown, all of which serve."""
    states: tuple[tuple[State, int], ...]
    """How many are in each state, the worst first."""
    ranges: tuple[RangeStatus, ...]
    envoys: tuple[str, ...]
    missing: str
    """Why there are no figures of Envoy; empty if there are."""
    hosts: bool
    """Whether several hosts share the addresses."""


Pointing = Callable[[str], Iterable[tuple[ObjectRef, Pointer]]]
"""The DNSRecords that point to an address or a host name."""


def row(one: Balancer, pointing: Pointing, meter: Meter, now: float) -> Row:
    key, envoy = subjects.key(one.ref), one.envoy
    flow = None
    if envoy:
        flow = flow_of(meter, key, envoy.open, (envoy.total, envoy.received, envoy.sent), now)
    return Row(
        one.ref, one.state, TONES[one.state], one.why, _seconds(one.edge.since) if one.edge else 0.0,
        one.addresses, one.hostname, one.host, one.demand.places,
        (envoy.healthy, envoy.backends) if envoy else None, flow,
        tuple(records(filter(None, (*one.addresses, one.hostname)), pointing)),
    )  # fmt: skip


def flow_of(meter: Meter, key: str, open_: int, counts: tuple[int, int, int], now: float) -> Flow:
    """`counts` are connections, bytes from clients, and bytes to them, since Envoy was started."""
    begun, received, sent = meter.speeds(key, counts, now) or (None, None, None)
    return Flow(open_, counts[0], begun, received, sent)


def records(targets: Iterable[str], pointing: Pointing) -> list[Record]:
    """The DNSRecords that point to any of these, each once."""
    found = {ref: Record(ref, one, target) for target in targets for ref, one in pointing(target)}
    return sorted(found.values(), key=lambda one: (one.pointer.name, one.ref))[:_MOST_RECORDS]


def model(found: Snapshot, pointing: Pointing, meter: Meter, now: float) -> Balancers:
    """Those that do not serve come first."""
    ordered = sorted(found.balancers, key=lambda one: (_ORDER.index(one.state), one.ref))
    counts = Counter(one.state for one in ordered)
    edge = found.edge
    return Balancers(
        tuple(row(one, pointing, meter, now) for one in ordered[:_MOST]), max(len(ordered) - _MOST, 0),
        tuple((state, counts[state]) for state in _ORDER if counts[state]),
        edge.ranges if edge else (), tuple(formatting.envoy_lines(edge)),
        found.missing_controller() if found.balancers else "", any(one.host for one in ordered),
    )  # fmt: skip


def pointing_in(mirror: Mirror) -> Pointing:
    return mirror.records.found


def heard(_: Params) -> tuple[str, ...]:
    kinds = (subjects.seen_kind("*", kind) for kind in (SERVICES.id, DNSRECORDS.id))
    return (*kinds, subjects.entry(streams.EDGES, ">"))


async def read(source: Source, _: Params) -> dict[str, Any]:
    found = await balancerquery.load_balancers(source.mirror.bus, source.loadbalancer)
    return {"model": model(found, pointing_in(source.mirror), source.meter, time.time())}


def _seconds(time: str) -> float:
    try:
        return datetime.fromisoformat(time).timestamp()
    except (ValueError, OverflowError):
        return 0.0


VIEW = View(
    name="balancers",
    title="Load balancers",
    about="Addresses, what is behind them, and what passes",
    read=read,
    heard=heard,
    interval=INTERVAL,
)
