"""Load balancers as text."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click

from commands.edges import edge_lines
from commands.units import size

if TYPE_CHECKING:
    from commands.balancers.query import Balancer, ReportedEvent, Snapshot
    from workers.loadbalancer.edge.status import BackendStatus, ListenerStatus

_COLOURS = {
    "serving": "green", "in part": "yellow", "drained": "yellow", "waiting": "yellow", "leaving": "yellow",
    "not served": "red",
}  # fmt: skip
_MOST_PORTS = 3
_MOST_EVENTS = 8


def print_list(balancers: Sequence[Balancer], found: Snapshot) -> None:
    from rich.console import Console
    from rich.table import Table

    if not balancers:
        click.echo(
            "No Service of type LoadBalancer is known. Make one: `kubectl expose deployment web --port 80 "
            "--type LoadBalancer`"
        )
    else:
        table = Table(box=None, header_style="bold", pad_edge=False)
        for title in ("CLUSTER", "SERVICE", "ADDRESS", "PORTS", "BACKENDS", "SINCE"):
            table.add_column(title, no_wrap=True)
        table.add_column("STATE", overflow="fold")
        for one in balancers:
            table.add_row(*_row(one))
        Console(width=None if sys.stdout.isatty() else 160, highlight=False).print(table)
    if missing := found.missing_controller():
        click.echo(missing)
    for line in edge_lines(found.edge):
        click.echo(line)


def print_one(balancer: Balancer, found: Snapshot, events: Sequence[ReportedEvent]) -> None:
    for line in _lines(balancer, found, events):
        click.echo(line)


def _row(one: Balancer) -> list[str]:
    places = one.demand.places
    more = f" +{len(places) - _MOST_PORTS}" if len(places) > _MOST_PORTS else ""
    why = f": {one.why}" if one.why else ""
    return [
        one.ref.cluster,
        f"{one.ref.namespace}/{one.ref.name}",
        "\n".join(one.addresses) or "-",
        ", ".join(places[:_MOST_PORTS]) + more or "-",
        f"{one.envoy.healthy}/{one.envoy.backends}" if one.envoy else "?" if one.edge else "-",
        _clock(one.edge.since) if one.edge else "-",
        f"[{_COLOURS[one.state]}]{one.state}[/]{_escaped(why)}",
    ]


def _lines(one: Balancer, found: Snapshot, events: Sequence[ReportedEvent]) -> Iterator[str]:
    state = click.style(one.state, fg=_COLOURS[one.state])
    since = f", since {_clock(one.edge.since)}" if one.edge else ""
    yield f"Service {one.ref.namespace}/{one.ref.name}, cluster {one.ref.cluster}: {state}{since}"
    if one.why:
        yield f"  why: {one.why}"
    yield f"  address: {', '.join(one.addresses) or 'none yet'}"
    if one.envoy:
        yield from _places(one.envoy.places)
    elif missing := found.missing_controller():
        yield f"  {missing}"
    for place in one.demand.places if not (one.envoy and one.envoy.places) else ():
        yield f"  {place}: {'accepts no new connections' if one.demand.drained else 'not served yet'}"
    if left := found.draining_connections(one):
        yield f"  draining: {left} open connections"
    if events:
        yield "  latest Events:"
    for shown in events[-_MOST_EVENTS:]:
        warning = shown.event.type == "Warning"
        line = f"    {shown.at.astimezone():%H:%M:%S}  {shown.event.reason}: {shown.event.note}"
        yield click.style(line, fg="yellow" if warning else None)
    yield from (f"  {line}" for line in edge_lines(found.edge) if line.startswith("Envoy"))


def _places(places: Iterable[ListenerStatus]) -> Iterator[str]:
    for place in places:
        where = f"[{place.address}]" if ":" in place.address else place.address
        what = "connections" if place.protocol == "TCP" else "flows"
        counted = f"{place.open} {what} now, {place.total} in all{_bytes(place)}"
        yield f"  {where}:{place.port}/{place.protocol}: {counted}"
        yield from (f"    {_backend(backend)}" for backend in place.backends)
        if not place.backends:
            yield "    no backend"


def _bytes(place: ListenerStatus) -> str:
    traffic = f"; {size(place.received)} in, {size(place.sent)} out"
    if place.protocol == "UDP":
        traffic += f"; {place.datagrams_received} datagrams in, {place.datagrams_sent} out"
    return traffic + (f"; {place.turned_away} turned away" if place.turned_away else "")


def _backend(backend: BackendStatus) -> str:
    sign = click.style("✓ healthy", fg="green") if backend.healthy else click.style("✗ ", fg="red")
    why = "" if backend.healthy else " and ".join(_REASONS.get(r, r) for r in backend.reasons) or "unhealthy"
    where = f"[{backend.address}]" if ":" in backend.address else backend.address
    return f"{backend.name:<20} {where}:{backend.port:<6} {sign}{why}"


_REASONS = {
    "active_health_check": "its health check fails",
    "outlier_check": "connections to it failed, so it is ejected for a while",
    "active_degraded_check": "its health check says degraded",
    "pending_dynamic_removal": "is being removed",
    "pending_active_hc": "waits for its first health check",
    "excluded_via_immediate_hc_fail": "its health check asked to be left out",
    "active_hc_timeout": "its health check is not answered",
}


def _clock(since: str) -> str:
    at = datetime.fromisoformat(since).astimezone()
    today = datetime.now().astimezone().date() == at.date()
    return f"{at:%H:%M:%S}" if today else f"{at:%Y-%m-%d %H:%M}"


def _escaped(text: str) -> str:
    return text.replace("[", r"\[")
