"""Envoy's admin interface: whether it serves, health of endpoints, and counters."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import orjson

from windowbox.errors import Refused
from workers.loadbalancer.envoy import bootstrap
from workers.loadbalancer.envoy.attachments import Running

_NAMED = 20
"""Addresses that a filter of counters names; for more, all are read."""


@dataclass(frozen=True)
class Traffic:
    """The traffic of a listener since its Envoy was started."""

    connections: int = 0
    """For UDP: flows."""
    active: int = 0
    received: int = 0
    """Bytes from clients."""
    sent: int = 0
    datagrams_received: int = 0
    datagrams_sent: int = 0
    turned_away: int = 0
    """Connections and datagrams from outside the source ranges, and connections beyond the limit."""


@dataclass(frozen=True)
class Health:
    """The health of an endpoint, as Envoy sees it."""

    name: str
    address: str
    port: int
    healthy: bool
    reasons: tuple[str, ...] = ()
    """Why it is not healthy."""


async def is_live(running: Running) -> bool:
    """Whether it has begun to serve."""
    try:
        return (await running.ask("/ready")).strip() == b"LIVE"
    except Refused:
        return False  # the status is 503


async def about(running: Running) -> tuple[str, int]:
    """Its version, and its uptime in seconds."""
    answer = orjson.loads(await running.ask("/server_info"))
    version = str(answer.get("version", ""))
    parts = version.split("/")  # commit/1.40.0/Clean/RELEASE/BoringSSL
    seconds = int(float(str(answer.get("uptime_current_epoch", "0s")).removesuffix("s") or 0))
    return parts[1] if len(parts) > 1 else version, seconds


async def warming(running: Running) -> frozenset[str]:
    """Clusters that wait for the first health checks of their endpoints."""
    answer = orjson.loads(await running.ask("/config_dump?resource=dynamic_warming_clusters"))
    return frozenset(one["cluster"]["name"] for one in answer.get("configs", []))


async def connections(running: Running) -> int:
    """How many connections and flows are open."""
    found = await _stats(running, r"\.(downstream_cx_active|downstream_sess_active)$")
    return sum(int(count) for name, count in found.items() if not name.startswith("listener.admin."))


async def busy(running: Running, addresses: Collection[str]) -> set[str]:
    """Those of these addresses on which connections or flows are open."""
    # Envoy has dozens of counters for each listener: it shall not write down those of thousands.
    names = "|".join(re.escape(stat_name(one)) for one in addresses) if len(addresses) <= _NAMED else ".*"
    found = await _stats(running, rf"_({names})_\d+\.downstream_(cx|sess)_active$")
    active = {key.partition(".")[2].rpartition(".")[0] for key, count in found.items() if count != "0"}
    return {address for address in addresses if any(is_at(address, name) for name in active)}


async def traffic(running: Running) -> dict[str, Traffic]:
    """By each listener's name in statistics."""
    found = await _stats(running, r"^(tcp|udp|listener|connection_limit)\.")
    counts: dict[str, dict[str, int]] = {}
    for key, value in found.items():
        name, _, what = key.partition(".")[2].rpartition(".")
        if value.isdigit() and name != "admin":
            counts.setdefault(name, {})[what] = int(value)
    return {name: _traffic(count) for name, count in counts.items()}


async def health(running: Running) -> dict[str, tuple[Health, ...]]:
    """The health of the endpoints, by listener."""
    answer = orjson.loads(await running.ask("/clusters?format=json"))
    return {
        cluster["name"]: tuple(map(_health, cluster.get("host_statuses", [])))
        for cluster in answer.get("cluster_statuses", [])
        if cluster["name"] != bootstrap.EDGE
    }


def stat_name(name: str) -> str:
    """A listener's name as statistics spell it."""
    return name.replace(":", "_")


def is_at(address: str, name: str) -> bool:
    """Whether a listener has the address; by its name in statistics."""
    return name.partition("_")[2].rpartition("_")[0] == stat_name(address)


async def _stats(running: Running, regex: str) -> dict[str, str]:
    answer = (await running.ask(f"/stats?filter={quote(regex, safe='')}")).decode()
    pairs = (line.split(": ", 1) for line in answer.splitlines() if ": " in line)
    return {name: value.strip('"') for name, value in pairs}


def _traffic(count: Mapping[str, int]) -> Traffic:
    def of(*names: str) -> int:
        return sum(count.get(name, 0) for name in names)

    return Traffic(
        connections=of("downstream_cx_total", "downstream_sess_total"),
        active=of("downstream_cx_active", "downstream_sess_active"),
        received=of("downstream_cx_rx_bytes_total", "downstream_sess_rx_bytes"),
        sent=of("downstream_cx_tx_bytes_total", "downstream_sess_tx_bytes"),
        datagrams_received=of("downstream_sess_rx_datagrams"),
        datagrams_sent=of("downstream_sess_tx_datagrams"),
        turned_away=of("no_filter_chain_match", "downstream_sess_no_route", "limited_connections"),
    )


def _health(host: Mapping[str, Any]) -> Health:
    address = host["address"]["socket_address"]
    status = host.get("health_status", {})
    reasons = {k.removeprefix("failed_") for k, value in status.items() if value is True}
    if status.get("eds_health_status", "HEALTHY") not in ("HEALTHY", "UNKNOWN"):
        # windowbox marks an endpoint UNHEALTHY after its own check: the reason is the same as for Envoy's.
        reasons.add("active_health_check")
    return Health(
        name=host.get("hostname", ""),
        address=address["address"],
        port=address["port_value"],
        healthy=not reasons,
        reasons=tuple(sorted(reasons)),
    )
