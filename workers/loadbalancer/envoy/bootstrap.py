"""Envoy's command line and bootstrap file."""

from __future__ import annotations

import os
import resource
from typing import Any

import orjson

BOOTSTRAP = "envoy.json"
CLUSTERS = "cds.pb"
LISTENERS = "lds.pb"
RUNTIME = "runtime.json"
OWNERS = "owners.json"
"""Whose the addresses are. Envoy does not read it; a bus that has forgotten it can be told again."""
ADMIN = "admin.sock"
LAYER = "windowbox"
"""The name of the layer of runtime values that RUNTIME holds."""

DRAIN = 600
"""Seconds that connections of a listener live on when it was changed or removed. Also Envoy's default."""

MOST_CONNECTIONS = 50_000
"""Of all listeners together. Those beyond are closed at once, rather than that memory ends."""
MOST_FLOWS = 16_384
_FEWEST_FLOWS = 1_024
"""UDP flows of one port. Datagrams of more are dropped."""

_DEAF = "10s"
"""Watchdogs report a thread that was stuck so long; shorter times wake an idle Envoy all the time."""

_COUNTED = (
    "listener_manager.lds.",
    "listener_manager.total_listeners_",
    "cluster_manager.cds.",
    "cluster_manager.warming_clusters",
    "server.state",
)
_COUNTED_OF_EACH = (
    r"cluster\..*\.version_text",
    # Not what is counted for each thread of it.
    r"listener\.(tcp|udp)_[0-9a-f._]*\.(downstream_cx_active|no_filter_chain_match)",
    r"tcp\..*\.downstream_cx_(total|rx_bytes_total|tx_bytes_total)",
    r"udp\..*\.downstream_sess_(active|total|no_route|[rt]x_bytes|[rt]x_datagrams)",
    r"connection_limit\..*\.limited_connections",
)
"""A thousand listeners would need tens of megabytes for what nobody asks for."""


def most_files() -> int:
    """How many files Envoy may have open: it inherits the limit of this process. Out of them, it ends."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return 2**20 if hard == resource.RLIM_INFINITY else hard


def most_connections(files: int) -> int:
    """Each takes two files. A quarter is left for UDP flows, listeners and health checks."""
    return min(MOST_CONNECTIONS, files * 3 // 8)


def most_of_one(files: int) -> int:
    """Connections to one port of one address: it leaves some to others, however many clients it has."""
    return most_connections(files) * 3 // 4


def most_flows(files: int) -> int:
    """UDP flows of one port, each of which takes a file. Nothing limits those of all ports together."""
    return min(MOST_FLOWS, max(files // 32, min(_FEWEST_FLOWS, files // 8)))


def arguments(folder: str, *, workers: int | None = None) -> list[str]:
    """What comes after the program's name. `folder` is where the files are, as Envoy sees it."""
    return [
        *("--config-path", f"{folder}/{BOOTSTRAP}"),
        *("--concurrency", str(workers or min(2, os.cpu_count() or 1))),
        *("--drain-time-s", str(DRAIN)),
        *("--drain-strategy", "immediate"),
        *("--log-level", "warning"),
        # Several Envoys may share a network; hot restart would have them share a socket, too.
        "--disable-hot-restart",
    ]


def bootstrap(folder: str) -> bytes:
    """The file that an Envoy starts with. All else it reads from files in `folder`, and reads again when
    they are replaced."""
    return orjson.dumps(
        {
            "node": {"id": "windowbox", "cluster": "windowbox"},
            "admin": {"address": {"pipe": {"path": f"{folder}/{ADMIN}", "mode": 0o600}}},
            "dynamic_resources": {
                "cds_config": _file(folder, CLUSTERS),
                "lds_config": _file(folder, LISTENERS),
            },
            "layered_runtime": {"layers": [_layer(folder)]},
            "stats_config": {"stats_matcher": {"inclusion_list": {"patterns": _patterns()}}},
            # Nobody is told of statistics: they are asked for.
            "stats_flush_on_admin": True,
            # What counts the traffic of a cluster exists only from its first connection on.
            "deferred_stat_options": {"enable_deferred_creation_stats": True},
            # What it took to read the files is given back to the host.
            "memory_allocator_manager": {
                "bytes_to_release": str(256 << 20),
                "memory_release_interval": "5s",
            },
            "overload_manager": {"resource_monitors": [_most_connections()]},
            "watchdogs": {"main_thread_watchdog": _watchdog(), "worker_watchdog": _watchdog()},
        },
        option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS,
    )


def endpoints_file(name: str) -> str:
    """Where a cluster's endpoints are, if they have a file of their own."""
    return f"eds_{name.replace(':', '-')}.pb"


def _file(folder: str, name: str) -> dict[str, Any]:
    return {
        "resource_api_version": "V3",
        "path_config_source": {"path": f"{folder}/{name}"},
        "initial_fetch_timeout": "0s",
    }


def _layer(folder: str) -> dict[str, Any]:
    return {"name": LAYER, "rtds_layer": {"name": LAYER, "rtds_config": _file(folder, RUNTIME)}}


def _patterns() -> list[dict[str, Any]]:
    return [
        *({"prefix": prefix} for prefix in _COUNTED),
        *({"safe_regex": {"regex": regex}} for regex in _COUNTED_OF_EACH),
    ]


def _most_connections() -> dict[str, Any]:
    kind = "type.googleapis.com/envoy.extensions.resource_monitors.downstream_connections.v3"
    limit = {
        "@type": f"{kind}.DownstreamConnectionsConfig",
        "max_active_downstream_connections": most_connections(most_files()),
    }
    return {"name": "envoy.resource_monitors.global_downstream_max_connections", "typed_config": limit}


def _watchdog() -> dict[str, str]:
    return {"miss_timeout": _DEAF, "megamiss_timeout": _DEAF}
