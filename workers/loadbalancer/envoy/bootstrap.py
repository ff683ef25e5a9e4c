"""Envoy's bootstrap file, and the names of its other files."""

from __future__ import annotations

from typing import Any

import orjson

from workers.loadbalancer.envoy import limits
from workers.loadbalancer.launcher import commandline

BOOTSTRAP = commandline.CONFIG
CLUSTERS = "cds.pb"
LISTENERS = "lds.pb"
RUNTIME = "runtime.json"
OWNERS = "owners.json"
"""The Services that own the addresses: restores claims that the bus lost. Envoy does not read it."""
ADMIN = "admin.sock"
LAYER = "windowbox"
"""The layer of runtime values that RUNTIME holds."""

_STUCK = "10s"
"""Watchdogs report a thread that is stuck for this long; shorter times wake an idle Envoy often."""

_COUNTED = (
    "listener_manager.lds.",
    "listener_manager.total_listeners_",
    "cluster_manager.cds.",
    "cluster_manager.warming_clusters",
    "server.state",
)
_COUNTED_OF_EACH = (
    r"cluster\..*\.version_text",
    # Not the counters of each worker thread (listener.<name>.worker_0.…).
    r"listener\.(tcp|udp)_[0-9a-f._]*\.(downstream_cx_active|no_filter_chain_match)",
    r"tcp\..*\.downstream_cx_(total|rx_bytes_total|tx_bytes_total)",
    r"udp\..*\.downstream_sess_(active|total|no_route|[rt]x_bytes|[rt]x_datagrams)",
    r"connection_limit\..*\.limited_connections",
)
"""All other statistics are off: for a thousand listeners, they take tens of megabytes."""


def bootstrap(folder: str) -> bytes:
    """Envoy's static configuration. It reads the rest from files in `folder`, again after each rename."""
    watchdog = {"miss_timeout": _STUCK, "megamiss_timeout": _STUCK}
    monitors = "type.googleapis.com/envoy.extensions.resource_monitors.downstream_connections.v3"
    connections = {
        "name": "envoy.resource_monitors.global_downstream_max_connections",
        "typed_config": {
            "@type": f"{monitors}.DownstreamConnectionsConfig",
            "max_active_downstream_connections": limits.most_connections(limits.most_files()),
        },
    }
    runtime = {"name": LAYER, "rtds_config": _file(folder, RUNTIME)}
    patterns: list[dict[str, Any]] = [{"prefix": prefix} for prefix in _COUNTED]
    patterns += [{"safe_regex": {"regex": regex}} for regex in _COUNTED_OF_EACH]
    return orjson.dumps(
        {
            "node": {"id": "windowbox", "cluster": "windowbox"},
            "admin": {"address": {"pipe": {"path": f"{folder}/{ADMIN}", "mode": 0o600}}},
            "dynamic_resources": {
                "cds_config": _file(folder, CLUSTERS),
                "lds_config": _file(folder, LISTENERS),
            },
            "layered_runtime": {"layers": [{"name": LAYER, "rtds_layer": runtime}]},
            "stats_config": {"stats_matcher": {"inclusion_list": {"patterns": patterns}}},
            # There is no stats sink, so a periodic flush would only wake Envoy.
            "stats_flush_on_admin": True,
            # Creates the traffic counters of a cluster with its first connection.
            "deferred_stat_options": {"enable_deferred_creation_stats": True},
            # Returns the memory that reading the files took to the host.
            "memory_allocator_manager": {
                "bytes_to_release": str(256 << 20),
                "memory_release_interval": "5s",
            },
            "overload_manager": {"resource_monitors": [connections]},
            "watchdogs": {"main_thread_watchdog": watchdog, "worker_watchdog": watchdog},
        },
        option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS,
    )


def endpoints_file(name: str) -> str:
    """The file of a cluster's endpoints, if they have one of their own."""
    return f"eds_{name.replace(':', '-')}.pb"


def _file(folder: str, name: str) -> dict[str, Any]:
    return {
        "resource_api_version": "V3",
        "path_config_source": {"path": f"{folder}/{name}"},
        # By default, Envoy starts without this file after 15 s.
        "initial_fetch_timeout": "0s",
    }
