"""Quantities, durations and the state of the edge as text for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workers.loadbalancer.edge.edgestatus import EdgeStatus
    from workers.loadbalancer.envoy.edge import About


def size(octets: int) -> str:
    """Bytes with a binary unit."""
    amount = float(octets)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"


def uptime(seconds: float) -> str:
    """Two units of time at most: `5s`, `3m07s`, `2h05m`."""
    minutes, rest = divmod(int(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60}h{minutes % 60:02}m"
    return f"{minutes}m{rest:02}s" if minutes else f"{rest}s"


def edge_lines(edge: EdgeStatus | None) -> Iterator[str]:
    """One line for each Envoy, and one for each address range with its free addresses."""
    yield from envoy_lines(edge)
    for each in edge.ranges if edge else ():
        yield f"{each.family} addresses of {each.range}: {each.used} of {each.total} in use"


def envoy_lines(edge: EdgeStatus | None, host: str = "") -> Iterator[str]:
    """One line for each Envoy, or for each of this host."""
    if edge is None:
        return
    if not edge.hosts:
        yield from (f"{_envoy(one)}, {_balancers(edge.count)}" for one in edge.envoys)
    for found in edge.hosts:
        if host not in ("", found.name):
            continue
        if found.count is None:
            yield f"Host {found.name}: its edge does not answer"
        else:
            yield from (
                f"Host {found.name}: {_envoy(one)}, {_balancers(found.count)}" for one in found.envoys
            )


def _envoy(one: About) -> str:
    pid = f", pid {one.pid}" if one.pid else ""
    return f"Envoy {one.version} ({one.name}, generation {one.generation}{pid}), up {uptime(one.uptime)}"


def _balancers(count: int) -> str:
    return f"{count} load balancer{'s' if count != 1 else ''}"


def aligned(commands: Mapping[str, str]) -> str:
    """Commands, one per line, with their effects in a second column."""
    width = max(len(command) for command, effect in commands.items() if effect)
    return "\n".join(f"  {command:<{width}}  {effect}".rstrip() for command, effect in commands.items())
