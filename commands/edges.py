"""The state of the edge as lines, for `lb`, `status` and `top`."""

from __future__ import annotations

from collections.abc import Iterator

from workers.loadbalancer.edge.edgestatus import EdgeStatus


def edge_lines(edge: EdgeStatus | None) -> Iterator[str]:
    """Each Envoy, and how many addresses are left."""
    if edge is None:
        return
    for one in edge.envoys:
        pid = f", pid {one.pid}" if one.pid else ""
        yield (
            f"Envoy {one.version} ({one.name}, generation {one.generation}{pid}), up {_span(one.uptime)}, "
            f"{edge.count} load balancer{'s' if edge.count != 1 else ''}"
        )
    for each in edge.ranges:
        yield f"{each.family} addresses of {each.range}: {each.used} of {each.total} in use"


def _span(seconds: int) -> str:
    minutes, hours = seconds // 60, seconds // 3600
    if hours:
        return f"{hours}h{minutes % 60:02}m"
    return f"{minutes}m{seconds % 60:02}s" if minutes else f"{seconds}s"
