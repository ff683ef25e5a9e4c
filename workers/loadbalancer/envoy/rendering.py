"""Envoy's listeners and clusters as in its files, each made from one listener of a load balancer."""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Literal

from windowbox.models.loadbalancers import (
    Endpoint,
    Family,
    Listener,
    LoadBalancer,
    Protocol,
    Target,
    family,
)
from workers.loadbalancer.envoy import bootstrap, limits, protobuf
from workers.loadbalancer.envoy.protobuf import Resource

_TYPES = "type.googleapis.com/envoy"
_CLUSTER = "envoy.config.cluster.v3.Cluster"
_LISTENER = f"{_TYPES}.config.listener.v3.Listener"
_ASSIGNMENT = "envoy.config.endpoint.v3.ClusterLoadAssignment"
_LOCALITY = "envoy.config.endpoint.v3.LocalityLbEndpoints"
_PORTS = {1: (1, 127), 2: (128, 16_383), 3: (16_384, 65_535)}
"""The first and the last port that take so many bytes: already their first bytes differ."""

_TCP_IDLE = 3600.0
_UDP_IDLE = 60.0
_LARGEST_DATAGRAM = 65535
_MTU_DISCOVERY: dict[Family, tuple[int, int]] = {"IPv4": (0, 10), "IPv6": (41, 23)}
"""Level and number of IP_MTU_DISCOVER and IPV6_MTU_DISCOVER on Linux."""
_MAY_FRAGMENT = 1
"""IP_PMTUDISC_WANT, the default of every socket on Linux."""
_OPTIONS_ARE_KNOWN = sys.platform == "linux"
"""Other systems have other numbers: there, responses larger than the MTU are lost."""

_CONNECT_TIMEOUT = "0.3s"
"""Nodes are on this very machine, and their kernel accepts connections however busy they are."""
_CONNECT_ATTEMPTS = 10
"""Enough for a client whose hash always selects the same endpoint: it is ejected after some failures."""
_FAILURES = 3
"""More than one: a single lost packet must not eject the only healthy endpoint."""

_CHECK_TIMEOUT = "1s"
_CHECK_INTERVAL = "1.5s"
"""With it, a node whose Pods terminate is out after 3.5 s: some serve on for little longer."""
_CHECK_FAILURES = 3
_FAILURE_INTERVAL = "0.7s"
_RECOVERY_INTERVAL = "0.5s"
"""For unhealthy endpoints. Shorter than the time to become unhealthy: when Pods move to another node, that
node has to be healthy before the first is not. And kube-proxies learn of the move at different moments."""
REMEMBERED = 16384
"""Encoded parts of resources that are cached: a change of nodes changes the endpoints of clusters only."""

_NO_SOURCE = {"IPv4": "0.0.0.0/32", "IPv6": "::/128"}
"""A source that no packet has, for listeners without any permitted source."""


def listener(listener: Listener, *, socket_options: bool = True) -> bytes:
    """The listener for clients."""
    address = _address(listener.address, listener.port)
    address["socket_address"]["protocol"] = listener.protocol
    resource = {
        "@type": _LISTENER,
        "name": listener.name,
        "stat_prefix": listener.name,
        "address": address,
        # The host may get the address later.
        "freebind": True,
        **(_tcp(listener) if listener.protocol == "TCP" else _udp(listener)),
    }
    if listener.protocol == "UDP" and socket_options and _OPTIONS_ARE_KNOWN:
        resource["socket_options"] = [_may_fragment(listener.address)]
    return protobuf.entry(resource)


def lacks_options(listener: bytes) -> bool:
    """Whether the sockets of this listener lack options: it is from an earlier version of windowbox."""
    # Only UDP listeners have any.
    is_udp = protobuf.holds(listener, "udp_listener_config")
    return is_udp and _OPTIONS_ARE_KNOWN and not protobuf.holds(listener, "socket_options")


def with_options(listener: bytes) -> bytes:
    """The same listener with socket options, for a new Envoy."""
    if not lacks_options(listener):
        return listener
    resource = protobuf.resource(listener)
    address = resource["address"]["socket_address"]["address"]
    return protobuf.entry({**resource, "socket_options": [_may_fragment(address)]})


class EndpointLists:
    """Lists of endpoints. That of a cluster's nodes is encoded once, for all their ports."""

    def __init__(self) -> None:
        self._parts: dict[tuple[object, ...], list[bytes]] = {}

    def cluster(self, balancer: LoadBalancer, listener: Listener, folder: str | None) -> bytes:
        """The cluster of a listener. With a `folder`, its endpoints are in a file of their own there."""
        check, affinity, proxy = listener.check, listener.affinity, listener.proxy_protocol
        message = _cluster(listener.name, listener.protocol, check, affinity, proxy, folder)
        if folder is None:
            message += protobuf.encoded(_CLUSTER, {"load_assignment": self._assignment(balancer, listener)})
        return protobuf.entry_of(_CLUSTER, message)

    def endpoints(self, balancer: LoadBalancer, listener: Listener) -> bytes:
        """The content of a cluster's own file of endpoints."""
        return protobuf.entry_of(_ASSIGNMENT, self._assignment(balancer, listener))

    def _assignment(self, balancer: LoadBalancer, listener: Listener) -> bytes:
        found = b"" if listener.vacant else self._endpoints(balancer, listener)
        return protobuf.encoded(_ASSIGNMENT, {"cluster_name": listener.name, "endpoints": [found]})

    def _endpoints(self, balancer: LoadBalancer, listener: Listener) -> bytes:
        if listener.node_port is None:
            by_name = sorted(listener.endpoints, key=lambda one: (one.name, one.address, one.port))
            return b"".join(_endpoint(one, one.port, listener) for one in by_name)
        targets, port = balancer.targets_of(listener), protobuf.varint(listener.node_port)
        # The targets of a cluster are one object for all of its Services: `id` tells clusters apart.
        key = id(targets), len(port), listener.check, listener.affinity
        parts = self._parts.get(key)
        if parts is None:
            parts = self._parts[key] = _around_port(targets, len(port), listener)
        return port.join(parts)


def _around_port(targets: Iterable[Target], size: int, listener: Listener) -> list[bytes]:
    """The endpoints without their port of `size` bytes: it belongs between each two of the parts."""
    parts, rest = [], b""
    for one in sorted(targets, key=lambda one: (one.name, one.address)):
        first, last = (_endpoint(one, port, listener) for port in _PORTS[size])
        # They differ in their port only, and from its first byte on.
        at = next(i for i, (a, b) in enumerate(zip(first, last, strict=True)) if a != b)
        parts.append(rest + first[:at])
        rest = first[at + size :]
    return [*parts, rest]


@lru_cache(maxsize=REMEMBERED)
def _cluster(
    name: str,
    protocol: Protocol,
    check: int | None,
    affinity: bool,
    proxy_protocol: Literal[1, 2] | None,
    folder: str | None,
) -> bytes:
    """A cluster without endpoints."""
    files, is_tcp = limits.most_files(), protocol == "TCP"
    most = limits.most_of_one(files) if is_tcp else limits.most_flows(files)
    resource: Resource = {
        "name": name,
        "connect_timeout": _CONNECT_TIMEOUT,
        "lb_policy": "MAGLEV" if affinity else "RANDOM",
        # Envoy's default is 1,024 connections or UDP flows; pending ones wait for an endpoint to accept them.
        "circuit_breakers": {"thresholds": [{"max_connections": most, "max_pending_requests": most}]},
        "common_lb_config": {
            # Without a healthy endpoint there is no traffic, rather than traffic to all of them.
            "healthy_panic_threshold": {"value": 0},
            # All threads learn of ejected endpoints at once. By default, Envoy merges the updates of a
            # second, in which all attempts of a client may go to an endpoint that is dead.
            "update_merge_window": "0s",
        },
        "type": "STATIC",
        **({} if folder is None else _eds(name, folder)),
        **({"outlier_detection": _OUTLIERS} if is_tcp else {}),
        **({"health_checks": [_CHECK]} if check else {}),
    }
    if proxy_protocol and is_tcp:
        resource |= _announcing(proxy_protocol)
        if check:
            resource["health_checks"] = [{**_CHECK, "transport_socket_match_criteria": {"check": True}}]
    return protobuf.encoded(_CLUSTER, resource)


def _eds(name: str, folder: str) -> Resource:
    path = f"{folder}/{bootstrap.endpoints_file(name)}"
    source = {"resource_api_version": "V3", "path_config_source": {"path": path}}
    return {
        "type": "EDS",
        "eds_cluster_config": {"service_name": name, "eds_config": source},
        # By default, a removed endpoint stays for as long as its health checks succeed.
        "ignore_health_on_host_removal": True,
    }


def _announcing(version: Literal[1, 2]) -> Resource:
    """The fields of a cluster that sends PROXY headers."""
    plain = {"name": "envoy.transport_sockets.raw_buffer"}
    plain |= _any("extensions.transport_sockets.raw_buffer.v3.RawBuffer", {})
    announcing = {"config": {"version": f"V{version}"}, "transport_socket": plain}
    name = "extensions.transport_sockets.proxy_protocol.v3.ProxyProtocolUpstreamTransport"
    socket = {"name": "envoy.transport_sockets.upstream_proxy_protocol", **_any(name, announcing)}
    # Health checks go to another server, which does not expect the PROXY header.
    match = {"name": "check", "match": {"check": True}, "transport_socket": plain}
    return {"transport_socket": socket, "transport_socket_matches": [match]}


_OUTLIERS: Resource = {
    # Ejects an endpoint that refuses connections until its health check succeeds, or for a moment. At 99
    # percent, one of up to a hundred endpoints always stays: it may be the last healthy one.
    "split_external_local_origin_errors": True,
    "consecutive_local_origin_failure": _FAILURES,
    # By default, Envoy also ejects endpoints that fail more often than others.
    "enforcing_local_origin_success_rate": 0,
    "interval": "2s",
    "base_ejection_time": "2s",
    "max_ejection_time": "2s",
    "max_ejection_percent": 99,
}

_CHECK: Resource = {
    "timeout": _CHECK_TIMEOUT,
    "interval": _CHECK_INTERVAL,
    "no_traffic_healthy_interval": _CHECK_INTERVAL,
    "unhealthy_edge_interval": _FAILURE_INTERVAL,
    "unhealthy_interval": _RECOVERY_INTERVAL,
    # An unhealthy cluster has no traffic; often, kube-proxy has only not learnt of the Service yet.
    "no_traffic_interval": _RECOVERY_INTERVAL,
    "interval_jitter_percent": 10,
    "unhealthy_threshold": _CHECK_FAILURES,
    "healthy_threshold": 1,
    # Open connections for each endpoint of each listener would cost memory and descriptors.
    "reuse_connection": False,
    "http_health_check": {
        "path": "/healthz",
        "host": "windowbox",
        # By default, one 503 ejects a node. It means that no Pod there is ready, not that the node is dead:
        # Pods that terminate still serve, and the node of their successors may not have been checked yet.
        "retriable_statuses": [{"start": 503, "end": 504}],
    },
}


def _tcp(listener: Listener) -> Resource:
    proxy: Resource = {
        "stat_prefix": listener.name,
        "cluster": listener.name,
        "idle_timeout": _seconds(listener.idle_timeout, _TCP_IDLE),
        "max_connect_attempts": _CONNECT_ATTEMPTS,
        # In the pause, all threads learn of an ejected endpoint.
        "backoff_options": {"base_interval": "0.025s", "max_interval": "0.1s"},
    }
    if listener.affinity:
        proxy["hash_policy"] = [{"source_ip": {}}]
    filters = [_typed("extensions.filters.network.tcp_proxy.v3.TcpProxy", proxy)]
    if listener.max_connections is not None:
        limit = {"stat_prefix": listener.name, "max_connections": listener.max_connections}
        filters.insert(0, _typed("extensions.filters.network.connection_limit.v3.ConnectionLimit", limit))
    chain: Resource = {"filters": filters}
    if listener.allowed is not None:
        # Not an RBAC filter: it acts on the client's first byte, after a server that speaks first.
        ranges = _sources(listener.allowed, family(listener.address))
        chain["filter_chain_match"] = {"source_prefix_ranges": ranges}
    return {"filter_chains": [chain]}


def _udp(listener: Listener) -> Resource:
    action = {"action": _typed("extensions.filters.udp.udp_proxy.v3.Route", {"cluster": listener.name})}
    matcher: Resource = {"on_no_match": action}
    if listener.allowed is not None:
        ranges = _sources(listener.allowed, family(listener.address))
        sources = {
            "@type": "type.googleapis.com/xds.type.matcher.v3.IPMatcher",
            "range_matchers": [{"ranges": ranges, "on_match": action}],
        }
        matcher = {
            "matcher_tree": {
                "input": _typed("extensions.matching.common_inputs.network.v3.SourceIPInput", {}),
                "custom_match": {"name": "sources", "typed_config": sources},
            }
        }
    proxy: Resource = {
        "stat_prefix": listener.name,
        "idle_timeout": _seconds(listener.idle_timeout, _UDP_IDLE),
        "upstream_socket_config": {"max_rx_datagram_size": _LARGEST_DATAGRAM},
        "matcher": matcher,
    }
    if listener.affinity:
        proxy["hash_policies"] = [{"source_ip": True}]
    socket = {"downstream_socket_config": {"max_rx_datagram_size": _LARGEST_DATAGRAM}}
    return {
        "udp_listener_config": socket,
        "listener_filters": [_typed("extensions.filters.udp.udp_proxy.v3.UdpProxyConfig", proxy)],
    }


def _may_fragment(address: str) -> Resource:
    """Permits fragments. Envoy forbids them for QUIC, so that responses larger than the MTU would be lost."""
    level, name = _MTU_DISCOVERY[family(address)]
    # Envoy sets its own options before bind(), ours have to follow.
    return {"level": level, "name": name, "int_value": _MAY_FRAGMENT, "state": "STATE_BOUND"}


def _endpoint(one: Endpoint | Target, port: int, listener: Listener) -> bytes:
    """An endpoint, encoded as one of a list."""
    there: Resource = {"hostname": one.name, "address": _address(one.address, port)}
    if listener.check:
        there["health_check_config"] = {"port_value": listener.check}
    found: Resource = {"endpoint": there}
    if one.unhealthy:
        found["health_status"] = "UNHEALTHY"
    if listener.affinity:
        # The node's name, because ports differ: TCP and UDP of a client have to reach the same node.
        found["metadata"] = {"filter_metadata": {"envoy.lb": {"hash_key": one.name}}}
    return protobuf.encoded(_LOCALITY, {"lb_endpoints": [found]})


def _address(address: str, port: int) -> Resource:
    return {"socket_address": {"address": address, "port_value": port}}


@lru_cache(maxsize=256)
def _sources(prefixes: tuple[str, ...], kind: Family) -> list[Resource]:
    # Cached, because all listeners of a Service have the same prefixes.
    found = [ipaddress.ip_network(prefix.strip(), strict=False) for prefix in prefixes]
    mine: list[Any] = [network for network in found if f"IPv{network.version}" == kind]
    networks = list(ipaddress.collapse_addresses(mine)) or [ipaddress.ip_network(_NO_SOURCE[kind])]
    return [{"address_prefix": str(one.network_address), "prefix_len": one.prefixlen} for one in networks]


def _typed(name: str, config: Resource) -> Resource:
    return {"name": name.rsplit(".", 1)[1], **_any(name, config)}


def _any(name: str, config: Resource) -> Resource:
    return {"typed_config": {"@type": f"{_TYPES}.{name}", **config}}


def _seconds(wanted: float | None, otherwise: float) -> str:
    return f"{otherwise if wanted is None else wanted:g}s"
