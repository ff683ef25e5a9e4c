"""Load balancers as text."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime

import click
from rich.console import Console
from rich.table import Table

from commands.balancers.balancerquery import Balancer, ReportedEvent, Snapshot
from commands.formatting import edge_lines, envoy_lines, size

_COLOURS = {
    "serving": "green", "in part": "yellow", "drained": "yellow", "waiting": "yellow", "leaving": "yellow",
    "not served": "red",
}  # fmt: skip
REASONS = {
    "active_health_check": "its health check fails",
    "outlier_check": "connections to it failed, so it is ejected for a while",
    "active_degraded_check": "its health check says degraded",
    "pending_dynamic_removal": "is being removed",
    "pending_active_hc": "waits for its first health check",
    "excluded_via_immediate_hc_fail": "its health check asked to be left out",
    "active_hc_timeout": "its health check is not answered",
}
_MOST_PORTS = 3
_MOST_EVENTS = 8


def print_list(balancers: Sequence[Balancer], found: Snapshot) -> None:
    if not balancers:
        click.echo(
            "No Service of type LoadBalancer is known. Create one: `kubectl expose deployment web --port 80 "
            "--type LoadBalancer`"
        )
    else:
        table = Table(box=None, header_style="bold", pad_edge=False)
        spread = any(one.host for one in balancers)
        hosts = ("HOST",) if spread else ()
        for title in ("CLUSTER", "SERVICE", "ADDRESS", *hosts, "PORTS", "BACKENDS", "SINCE"):
            table.add_column(title, no_wrap=True)
        table.add_column("STATE", overflow="fold")
        for one in balancers:
            places = one.demand.places
            more = f" +{len(places) - _MOST_PORTS}" if len(places) > _MOST_PORTS else ""
            # rich reads an opening bracket as the beginning of a style.
            why = f": {one.why}".replace("[", r"\[") if one.why else ""
            table.add_row(
                one.ref.cluster,
                f"{one.ref.namespace}/{one.ref.name}",
                "\n".join(one.addresses) or "-",
                *((one.host or "-",) if spread else ()),
                ", ".join(places[:_MOST_PORTS]) + more or "-",
                f"{one.envoy.healthy}/{one.envoy.backends}" if one.envoy else "?" if one.edge else "-",
                _clock(one.edge.since) if one.edge else "-",
                f"[{_COLOURS[one.state]}]{one.state}[/]{why}",
            )
        Console(width=None if sys.stdout.isatty() else 160, highlight=False).print(table)
    if missing := found.missing_controller():
        click.echo(missing)
    for line in edge_lines(found.edge):
        click.echo(line)


def print_one(one: Balancer, found: Snapshot, events: Sequence[ReportedEvent]) -> None:
    state = click.style(one.state, fg=_COLOURS[one.state])
    since = f", since {_clock(one.edge.since)}" if one.edge else ""
    lines = [f"Service {one.ref.namespace}/{one.ref.name}, cluster {one.ref.cluster}: {state}{since}"]
    if one.why:
        lines.append(f"  why: {one.why}")
    where = f", on host {one.host}" if one.host else ""
    lines.append(f"  address: {', '.join(one.addresses) or 'none yet'}{where}")
    if one.hostname:
        lines.append(f"  host name: {one.hostname}")
    if one.envoy:
        for place in one.envoy.places:
            what = "connections" if place.protocol == "TCP" else "flows"
            line = f"  {_host(place.address)}:{place.port}/{place.protocol}: {place.open} {what} now, "
            line += f"{place.total} in all; {size(place.received)} in, {size(place.sent)} out"
            if place.protocol == "UDP":
                line += f"; {place.datagrams_received} datagrams in, {place.datagrams_sent} out"
            lines.append(line + (f"; {place.turned_away} turned away" if place.turned_away else ""))
            for end in place.backends:
                sign = click.style("✓ healthy", fg="green") if end.healthy else click.style("✗ ", fg="red")
                reasons = " and ".join(REASONS.get(reason, reason) for reason in end.reasons)
                why = "" if end.healthy else reasons or "unhealthy"
                lines.append(f"    {end.name:<20} {_host(end.address)}:{end.port:<6} {sign}{why}")
            if not place.backends:
                lines.append("    no backend")
    elif missing := found.missing_controller():
        lines.append(f"  {missing}")
    if not one.envoy or not one.envoy.places:
        why = "accepts no new connections" if one.demand.drained else "not served yet"
        lines += [f"  {place}: {why}" for place in one.demand.places]
    if left := found.draining_connections(one):
        lines.append(f"  draining: {left} open connections")
    if events:
        lines.append("  latest Events:")
    for shown in events[-_MOST_EVENTS:]:
        line = f"    {shown.at.astimezone():%H:%M:%S}  {shown.event.reason}: {shown.event.note}"
        lines.append(click.style(line, fg="yellow" if shown.event.type == "Warning" else None))
    lines += [f"  {line}" for line in envoy_lines(found.edge, one.host)]
    click.echo("\n".join(lines))


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _clock(since: str) -> str:
    at = datetime.fromisoformat(since).astimezone()
    today = datetime.now().astimezone().date() == at.date()
    return f"{at:%H:%M:%S}" if today else f"{at:%Y-%m-%d %H:%M}"
