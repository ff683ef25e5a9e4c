"""Envoy's bootstrap file, and the names of the files beside it."""

from __future__ import annotations

from typing import Any

import orjson

from workers.loadbalancer.envoy import limits
from workers.loadbalancer.launcher import commandline

BOOTSTRAP = commandline.CONFIG
OWNERS = "owners.json"
"""The Services that own the addresses: restores claims that the bus lost. Envoy does not read it."""
ADMIN = "admin.sock"
LAYER = "windowbox"
"""The name of the layer of runtime values."""

_STUCK = "10s"
"""Watchdogs report a thread that is stuck for this long; shorter times wake an idle Envoy often."""

_COUNTED = ("listener_manager.total_listeners_",)
_COUNTED_OF_EACH = (
    # Not the counters of each worker thread (listener.<name>.worker_0.…).
    r"listener\.(tcp|udp)_[0-9a-f._]*\.(downstream_cx_active|no_filter_chain_match)",
    r"tcp\..*\.downstream_cx_(total|rx_bytes_total|tx_bytes_total)",
    r"udp\..*\.downstream_sess_(active|total|no_route|[rt]x_bytes|[rt]x_datagrams)",
    r"connection_limit\..*\.limited_connections",
)
"""All other statistics are off: for a thousand listeners, they take tens of megabytes."""


def bootstrap(node: str, folder: str, discovery: str) -> bytes:
    """Envoy's static configuration. It gets the rest over a stream from the socket `discovery`.

    Without the stream it keeps what it has; at its start it waits for it.
    """
    watchdog = {"miss_timeout": _STUCK, "megamiss_timeout": _STUCK}
    monitors = "type.googleapis.com/envoy.extensions.resource_monitors.downstream_connections.v3"
    connections = {
        "name": "envoy.resource_monitors.global_downstream_max_connections",
        "typed_config": {
            "@type": f"{monitors}.DownstreamConnectionsConfig",
            "max_active_downstream_connections": limits.most_connections(limits.most_files()),
        },
    }
    runtime = {"name": LAYER, "rtds_config": AGGREGATED}
    patterns: list[dict[str, Any]] = [{"prefix": prefix} for prefix in _COUNTED]
    patterns += [{"safe_regex": {"regex": regex}} for regex in _COUNTED_OF_EACH]
    return orjson.dumps(
        {
            "node": {"id": node, "cluster": "windowbox"},
            "admin": {"address": {"pipe": {"path": f"{folder}/{ADMIN}", "mode": 0o600}}},
            "dynamic_resources": {
                "ads_config": _STREAM,
                "cds_config": AGGREGATED,
                "lds_config": AGGREGATED,
            },
            "static_resources": {"clusters": [_edge(discovery)]},
            # A thread creates its part of a cluster with its first connection: most of thousands are idle.
            "cluster_manager": {"enable_deferred_cluster_creation": True},
            "layered_runtime": {"layers": [{"name": LAYER, "rtds_layer": runtime}]},
            "stats_config": {"stats_matcher": {"inclusion_list": {"patterns": patterns}}},
            # There is no stats sink, so a periodic flush would only wake Envoy.
            "stats_flush_on_admin": True,
            # Creates the traffic counters of a cluster with its first connection.
            "deferred_stat_options": {"enable_deferred_creation_stats": True},
            # Returns the memory that many changes took to the host.
            "memory_allocator_manager": {
                "bytes_to_release": str(256 << 20),
                "memory_release_interval": "5s",
            },
            "overload_manager": {"resource_monitors": [connections]},
            "watchdogs": {"main_thread_watchdog": watchdog, "worker_watchdog": watchdog},
        },
        option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS,
    )


AGGREGATED: dict[str, Any] = {
    "resource_api_version": "V3",
    "ads": {},
    # By default, Envoy goes on without these resources after 15 s.
    "initial_fetch_timeout": "0s",
}
"""A source of resources: the stream."""

EDGE = "windowbox_edge"
"""The name of the cluster from which it gets its resources."""
_HTTP = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_STREAM: dict[str, Any] = {
    "api_type": "DELTA_GRPC",
    "transport_api_version": "V3",
    # By default, nodes and paths are repeated in each request.
    "set_node_on_first_message_only": True,
    "grpc_services": [
        {
            "envoy_grpc": {
                "cluster_name": EDGE,
                # The edge that takes over from another one should not wait for its Envoys.
                "retry_policy": {"retry_back_off": {"base_interval": "0.1s", "max_interval": "1s"}},
            }
        }
    ],
}


def _edge(discovery: str) -> dict[str, Any]:
    """The cluster of the edge."""
    # An edge that hangs holds its side of the stream open: without an answer, Envoy asks the next one.
    alive = {"interval": "5s", "timeout": "3s"}
    http2 = {"explicit_http_config": {"http2_protocol_options": {"connection_keepalive": alive}}}
    address = {"pipe": {"path": discovery}}
    return {
        "name": EDGE,
        "type": "STATIC",
        "connect_timeout": "1s",
        "typed_extension_protocol_options": {_HTTP: {"@type": f"type.googleapis.com/{_HTTP}", **http2}},
        "load_assignment": {
            "cluster_name": EDGE,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
    }
