"""Envoy's listeners and clusters as they stand in its files, each made from a listener of ours."""

from __future__ import annotations

import ipaddress
import sys
from functools import lru_cache

from windowbox.models.loadbalancers import Endpoint, Family, Listener, family
from workers.loadbalancer.envoy import bootstrap, protobuf
from workers.loadbalancer.envoy.protobuf import Resource

_TYPES = "type.googleapis.com/envoy"
_CLUSTER = f"{_TYPES}.config.cluster.v3.Cluster"
_LISTENER = f"{_TYPES}.config.listener.v3.Listener"
_ASSIGNMENT = f"{_TYPES}.config.endpoint.v3.ClusterLoadAssignment"

_TCP_IDLE = 3600.0
_UDP_IDLE = 60.0
_LARGEST_DATAGRAM = 65535
_MTU_DISCOVERY: dict[Family, tuple[int, int]] = {"IPv4": (0, 10), "IPv6": (41, 23)}
"""Level and number of IP_MTU_DISCOVER and IPV6_MTU_DISCOVER on Linux."""
_MAY_FRAGMENT = 1
"""IP_PMTUDISC_WANT, which every socket of Linux has at first."""
_OPTIONS_ARE_KNOWN = sys.platform == "linux"
"""Elsewhere they have other numbers: there, answers larger than the MTU are lost."""

_CONNECT_TIMEOUT = "0.3s"
"""Nodes are on this very machine, and it is their kernel that answers, however busy they are."""
_CONNECT_ATTEMPTS = 10
"""Enough for a client that always begins at the same endpoint: after some failures it is taken out."""
_FAILURES = 3
"""More than one: where a single endpoint is healthy, nobody would be served because of one packet lost."""

_CHECK_TIMEOUT = "1s"
_CHECK_INTERVAL = "1.5s"
"""So that a node whose Pods terminate is out after 3.5 s: some serve on for little longer."""
_CHECK_FAILURES = 3
_FAILURE_INTERVAL = "0.7s"
_RECOVERY_INTERVAL = "0.5s"
"""For who is not healthy. Shorter than all failures take: when Pods move from one node to another, and both
answer otherwise from then on, the other has to be in before the one is out. kube-proxies tell at different
moments that they have heard of it, too."""
REMEMBERED = 16384
"""Resources that are not made anew each time. What stays the same is most of what is written."""

_NOBODY = {"IPv4": "0.0.0.0/32", "IPv6": "::/128"}
"""A source that no packet has, for listeners that nobody may use."""


@lru_cache(maxsize=REMEMBERED)
def listener(listener: Listener, *, socket_options: bool = True) -> bytes:
    """Where clients arrive."""
    address = _address(listener.address, listener.port)
    address["socket_address"]["protocol"] = listener.protocol
    resource = {
        "@type": _LISTENER,
        "name": listener.name,
        "stat_prefix": listener.name,
        "address": address,
        # It may come before its address does.
        "freebind": True,
        **(_tcp(listener) if listener.protocol == "TCP" else _udp(listener)),
    }
    if listener.protocol == "UDP" and socket_options and _OPTIONS_ARE_KNOWN:
        resource["socket_options"] = [_may_fragment(listener.address)]
    return protobuf.entry(resource)


@lru_cache(maxsize=REMEMBERED)
def lacks_options(listener: bytes) -> bool:
    """Whether this listener was made before its sockets had options."""
    # Only those of UDP have any.
    is_udp = protobuf.holds(listener, "udp_listener_config")
    return is_udp and _OPTIONS_ARE_KNOWN and not protobuf.holds(listener, "socket_options")


def with_options(listener: bytes) -> bytes:
    """The same for an Envoy that is started anew."""
    if not lacks_options(listener):
        return listener
    resource = protobuf.resource(listener)
    address = resource["address"]["socket_address"]["address"]
    return protobuf.entry({**resource, "socket_options": [_may_fragment(address)]})


@lru_cache(maxsize=REMEMBERED)
def cluster(listener: Listener, folder: str | None) -> bytes:
    """Where they are sent. With a `folder`, the endpoints are in a file of their own there."""
    resource: Resource = {
        "@type": _CLUSTER,
        "name": listener.name,
        "connect_timeout": _CONNECT_TIMEOUT,
        "lb_policy": "MAGLEV" if listener.affinity else "RANDOM",
        "circuit_breakers": _most(listener),
        "common_lb_config": {
            # Without a healthy endpoint there is no traffic, rather than traffic to all of them.
            "healthy_panic_threshold": {"value": 0},
            # What endpoints are left is told to all threads at once. After the first news Envoy otherwise
            # keeps the next for a second, and meanwhile all attempts may go to an endpoint that is dead.
            "update_merge_window": "0s",
        },
        **_endpoints(listener, folder),
    }
    if listener.protocol == "TCP":
        resource["outlier_detection"] = _outliers()
    if listener.check:
        resource["health_checks"] = [_check()]
    if listener.proxy_protocol and listener.protocol == "TCP":
        resource |= _announcing_clients(listener.proxy_protocol)
        for check in resource.get("health_checks", []):
            check["transport_socket_match_criteria"] = {"check": True}
    return protobuf.entry(resource)


def endpoints(listener: Listener) -> bytes:
    """What is in the file of a cluster that reads its endpoints from one."""
    return protobuf.entry({"@type": _ASSIGNMENT, **_assignment(listener)})


def _tcp(listener: Listener) -> Resource:
    chain: Resource = {"filters": [*_limit(listener), _tcp_proxy(listener)]}
    if listener.allowed is not None:
        # Not a filter for access: those act on the first byte of a client, and until then a server that
        # speaks first is heard.
        ranges = _sources(listener)
        chain["filter_chain_match"] = {"source_prefix_ranges": ranges}
    return {"filter_chains": [chain]}


def _limit(listener: Listener) -> list[Resource]:
    if listener.max_connections is None:
        return []
    limit = {"stat_prefix": listener.name, "max_connections": listener.max_connections}
    return [_typed("extensions.filters.network.connection_limit.v3.ConnectionLimit", limit)]


def _tcp_proxy(listener: Listener) -> Resource:
    proxy: Resource = {
        "stat_prefix": listener.name,
        "cluster": listener.name,
        "idle_timeout": _seconds(listener.idle_timeout, _TCP_IDLE),
        "max_connect_attempts": _CONNECT_ATTEMPTS,
        # The pause lets all threads learn that the endpoint was taken out.
        "backoff_options": {"base_interval": "0.025s", "max_interval": "0.1s"},
    }
    if listener.affinity:
        proxy["hash_policy"] = [{"source_ip": {}}]
    return _typed("extensions.filters.network.tcp_proxy.v3.TcpProxy", proxy)


def _udp(listener: Listener) -> Resource:
    proxy: Resource = {
        "stat_prefix": listener.name,
        "idle_timeout": _seconds(listener.idle_timeout, _UDP_IDLE),
        "upstream_socket_config": {"max_rx_datagram_size": _LARGEST_DATAGRAM},
        "matcher": _matcher(listener),
    }
    if listener.affinity:
        proxy["hash_policies"] = [{"source_ip": True}]
    return {
        "udp_listener_config": {
            "downstream_socket_config": {"max_rx_datagram_size": _LARGEST_DATAGRAM}
        },
        "listener_filters": [_typed("extensions.filters.udp.udp_proxy.v3.UdpProxyConfig", proxy)],
    }  # fmt: skip


def _may_fragment(address: str) -> Resource:
    """Envoy forbids that its answers are fragmented, as QUIC asks for: larger ones than the MTU are lost."""
    level, name = _MTU_DISCOVERY[family(address)]
    # Not before it is bound: Envoy's own options come later then.
    return {"level": level, "name": name, "int_value": _MAY_FRAGMENT, "state": "STATE_BOUND"}


def _matcher(listener: Listener) -> Resource:
    action = {"action": _typed("extensions.filters.udp.udp_proxy.v3.Route", {"cluster": listener.name})}
    if listener.allowed is None:
        return {"on_no_match": action}
    ranges = _sources(listener)
    sources = {
        "@type": "type.googleapis.com/xds.type.matcher.v3.IPMatcher",
        "range_matchers": [{"ranges": ranges, "on_match": action}],
    }
    return {
        "matcher_tree": {
            "input": _typed("extensions.matching.common_inputs.network.v3.SourceIPInput", {}),
            "custom_match": {"name": "sources", "typed_config": sources},
        }
    }


def _endpoints(listener: Listener, folder: str | None) -> Resource:
    if folder is None:
        return {"type": "STATIC", "load_assignment": _assignment(listener)}
    path = f"{folder}/{bootstrap.endpoints_file(listener.name)}"
    source = {"resource_api_version": "V3", "path_config_source": {"path": path}}
    return {
        "type": "EDS",
        "eds_cluster_config": {"service_name": listener.name, "eds_config": source},
        # Otherwise those that are healthy stay for ever.
        "ignore_health_on_host_removal": True,
    }


def _most(listener: Listener) -> Resource:
    """How many connections, or UDP flows. Without a word of ours, Envoy closes those beyond 1,024."""
    files = bootstrap.most_files()
    most = bootstrap.most_of_one(files) if listener.protocol == "TCP" else bootstrap.most_flows(files)
    # Pending is what an endpoint has not accepted yet.
    return {"thresholds": [{"max_connections": most, "max_pending_requests": most}]}


def _outliers() -> Resource:
    """An endpoint that cannot be connected to is left out until its check has succeeded, or for a moment.

    Never the last of all: a percentage of 99 leaves one of up to a hundred. It may be the last healthy one.
    """
    return {
        "split_external_local_origin_errors": True,
        "consecutive_local_origin_failure": _FAILURES,
        "enforcing_local_origin_success_rate": 0,
        "interval": "2s",
        "base_ejection_time": "2s",
        "max_ejection_time": "2s",
        "max_ejection_percent": 99,
    }


def _check() -> Resource:
    return {
        "timeout": _CHECK_TIMEOUT,
        "interval": _CHECK_INTERVAL,
        "no_traffic_healthy_interval": _CHECK_INTERVAL,
        "unhealthy_edge_interval": _FAILURE_INTERVAL,
        "unhealthy_interval": _RECOVERY_INTERVAL,
        # Whoever is not healthy gets no traffic; often kube-proxy has only not heard of the Service yet.
        "no_traffic_interval": _RECOVERY_INTERVAL,
        "interval_jitter_percent": 10,
        "unhealthy_threshold": _CHECK_FAILURES,
        "healthy_threshold": 1,
        # A connection kept open for each endpoint of each listener would cost memory and descriptors.
        "reuse_connection": False,
        "http_health_check": {
            "path": "/healthz",
            "host": "windowbox",
            # Otherwise the first 503 takes a node out. It means that no Pod there is ready, not that the node
            # is dead: those that terminate serve on, and the node that has the next may not have been asked.
            "retriable_statuses": [{"start": 503, "end": 504}],
        },
    }


def _announcing_clients(number: int) -> Resource:
    plain = {"name": "envoy.transport_sockets.raw_buffer"}
    plain |= _any("extensions.transport_sockets.raw_buffer.v3.RawBuffer", {})
    announcing = {"config": {"version": f"V{number}"}, "transport_socket": plain}
    name = "extensions.transport_sockets.proxy_protocol.v3.ProxyProtocolUpstreamTransport"
    return {
        "transport_socket": {"name": "envoy.transport_sockets.upstream_proxy_protocol"}
        | _any(name, announcing),
        # Who answers health checks does not expect it.
        "transport_socket_matches": [
            {"name": "check", "match": {"check": True}, "transport_socket": plain}
        ],
    }  # fmt: skip


def _assignment(listener: Listener) -> Resource:
    endpoints = () if listener.vacant else listener.endpoints
    found = [_endpoint(e, listener) for e in sorted(endpoints, key=_by_name)]
    return {"cluster_name": listener.name, "endpoints": [{"lb_endpoints": found}]}


def _by_name(endpoint: Endpoint) -> tuple[str, str, int]:
    return endpoint.name, endpoint.address, endpoint.port


def _endpoint(endpoint: Endpoint, listener: Listener) -> Resource:
    there: Resource = {"hostname": endpoint.name, "address": _address(endpoint.address, endpoint.port)}
    if listener.check:
        there["health_check_config"] = {"port_value": listener.check}
    found: Resource = {"endpoint": there}
    if endpoint.unhealthy:
        found["health_status"] = "UNHEALTHY"
    if listener.affinity:
        # By name, as ports differ: TCP and UDP are to agree on the node.
        found["metadata"] = {"filter_metadata": {"envoy.lb": {"hash_key": endpoint.name}}}
    return found


def _address(address: str, port: int) -> Resource:
    return {"socket_address": {"address": address, "port_value": port}}


def _sources(listener: Listener) -> list[Resource]:
    return _collapsed(listener.allowed or (), family(listener.address))


@lru_cache(maxsize=256)
def _collapsed(prefixes: tuple[str, ...], kind: Family) -> list[Resource]:
    # All listeners of a Service have the same prefixes: they are parsed once.
    found = [ipaddress.ip_network(prefix.strip(), strict=False) for prefix in prefixes]
    if kind == "IPv4":
        v4 = [n for n in found if isinstance(n, ipaddress.IPv4Network)]
        spelled = [str(n) for n in ipaddress.collapse_addresses(v4)]
    else:
        v6 = [n for n in found if isinstance(n, ipaddress.IPv6Network)]
        spelled = [str(n) for n in ipaddress.collapse_addresses(v6)]
    return [_prefix(network) for network in spelled or [_NOBODY[kind]]]


def _prefix(network: str) -> Resource:
    address, _, length = network.partition("/")
    return {"address_prefix": address, "prefix_len": int(length)}


def _typed(name: str, config: Resource) -> Resource:
    return {"name": name.rsplit(".", 1)[1], **_any(name, config)}


def _any(name: str, config: Resource) -> Resource:
    return {"typed_config": {"@type": f"{_TYPES}.{name}", **config}}


def _seconds(wanted: float | None, otherwise: float) -> str:
    return f"{otherwise if wanted is None else wanted:g}s"
