"""Envoy's listeners, clusters and endpoints, each made from one listener of a load balancer."""

from __future__ import annotations

import hashlib
import ipaddress
import sys
from collections.abc import Container, Iterable
from functools import lru_cache
from typing import Any, Literal

from windowbox.clients.xds import messages
from windowbox.clients.xds.messages import Fields
from windowbox.clients.xds.server import Resource
from windowbox.models.loadbalancers import (
    Endpoint,
    Family,
    Listener,
    LoadBalancer,
    Protocol,
    Target,
    family,
)
from workers.loadbalancer.envoy import bootstrap, limits
from workers.loadbalancer.envoy.delta import Kind

_TYPES = "type.googleapis.com/envoy"
_PORTS = {1: (1, 127), 2: (128, 16_383), 3: (16_384, 65_535)}
"""The first and the last port that Protobuf encodes in so many bytes: they differ in each of them."""
_DIGEST = 8
"""Bytes."""

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
_NOWHERE = "nowhere"
"""A cluster that does not exist: its connections are closed."""
_NO_SOURCE = {"IPv4": "0.0.0.0/32", "IPv6": "::/128"}
"""A source that no packet has, for listeners without any permitted source."""
_ANY: dict[Family, str] = {"IPv4": "0.0.0.0", "IPv6": "::"}


def listener(listener: Listener, *, anywhere: bool = False) -> Resource:
    """The listener for clients; `anywhere`: at all addresses, as Docker forwards to a container's own."""
    address = _address(_ANY[family(listener.address)] if anywhere else listener.address, listener.port)
    address["socket_address"]["protocol"] = listener.protocol
    fields = {
        "name": listener.name,
        "stat_prefix": listener.name,
        "address": address,
        # The host may get the address later.
        "freebind": True,
        **(_tcp(listener) if listener.protocol == "TCP" else _udp(listener)),
    }
    if listener.protocol == "UDP" and _OPTIONS_ARE_KNOWN:
        fields["socket_options"] = [_may_fragment(listener.address)]
    return _resource(messages.encoded(messages.message(Kind.LISTENERS, fields)))


def cluster(listener: Listener) -> Resource:
    """The cluster of a listener. Its endpoints are a resource of the same name."""
    alike = _cluster(listener.protocol, listener.check, listener.affinity, listener.proxy_protocol)
    found = messages.type_of(Kind.CLUSTERS)(name=listener.name)
    found.MergeFrom(alike)
    return _resource(messages.encoded(found))


def runtime(interval: int) -> Resource:
    """The runtime values: `interval` is the minimal milliseconds between two checks of an endpoint."""
    layer = {"health_check": {"min_interval": interval}}
    fields = {"name": bootstrap.LAYER, "layer": layer}
    return _resource(messages.encoded(messages.message(Kind.RUNTIME, fields)))


class EndpointLists:
    """Lists of endpoints. That of a cluster's nodes is encoded once, for all their ports."""

    def __init__(self, unhealthy: Container[str] = ()) -> None:
        """`unhealthy`: the addresses of nodes without traffic, where Envoy does not check them."""
        self._unhealthy = unhealthy
        self._parts: dict[tuple[object, ...], list[bytes]] = {}

    def endpoints(self, balancer: LoadBalancer, listener: Listener) -> Resource:
        """The endpoints of a listener."""
        # Encoded messages one after the other are one message with the fields of both.
        name = _named(listener.name)
        return _resource(name + (b"" if listener.vacant else self._endpoints(balancer, listener)))

    def _endpoints(self, balancer: LoadBalancer, listener: Listener) -> bytes:
        if listener.node_port is None:
            by_name = sorted(listener.endpoints, key=lambda one: (one.name, one.address, one.port))
            return _list(_endpoint(one, one.port, listener, ()) for one in by_name)
        targets, port = balancer.targets_of(listener), _varint(listener.node_port)
        # The targets of a cluster are one object for all of its Services: `id` tells clusters apart.
        key = id(targets), len(port), listener.check, listener.affinity
        parts = self._parts.get(key)
        if parts is None:
            unhealthy = () if listener.check else self._unhealthy
            parts = self._parts[key] = _around_port(targets, len(port), listener, unhealthy)
        return port.join(parts)


def _around_port(
    targets: Iterable[Target], size: int, listener: Listener, unhealthy: Container[str]
) -> list[bytes]:
    """The endpoints without their port of `size` bytes: it belongs between each two of the parts."""
    by_name = sorted(targets, key=lambda one: (one.name, one.address))
    first, last = (
        _list(_endpoint(one, port, listener, unhealthy) for one in by_name) for port in _PORTS[size]
    )
    ports = [at for at, (a, b) in enumerate(zip(first, last, strict=True)) if a != b][::size]
    begins = [0, *(at + size for at in ports)]
    return [first[begin:end] for begin, end in zip(begins, [*ports, len(first)], strict=True)]


@lru_cache(maxsize=1 << 14)
def _named(name: str) -> bytes:
    """A list of endpoints with a name only."""
    return messages.encoded(messages.type_of(Kind.ENDPOINTS)(cluster_name=name))


def _list(endpoints: Iterable[Fields]) -> bytes:
    fields = {"endpoints": [{"lb_endpoints": list(endpoints)}]}
    return messages.encoded(messages.message(Kind.ENDPOINTS, fields))


@lru_cache(maxsize=1 << 14)
def _varint(port: int) -> bytes:
    """A port as in Protobuf: seven bits a byte, the lowest first; the eighth says that more follow."""
    size = next(size for size, (_, last) in _PORTS.items() if port <= last)
    more = [0x80] * (size - 1)
    return bytes(port >> 7 * at & 0x7F | bit for at, bit in enumerate([*more, 0]))


def _resource(content: bytes) -> Resource:
    return Resource(hashlib.blake2b(content, digest_size=_DIGEST).hexdigest(), content)


@lru_cache(maxsize=64)
def _cluster(
    protocol: Protocol, check: int | None, affinity: bool, proxy_protocol: Literal[1, 2] | None
) -> Any:
    """A cluster without a name: thousands differ in nothing else."""
    files, is_tcp = limits.most_files(), protocol == "TCP"
    most = limits.most_of_one(files) if is_tcp else limits.most_flows(files)
    fields: dict[str, Any] = {
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
        "type": "EDS",
        "eds_cluster_config": {"eds_config": bootstrap.AGGREGATED},
        # By default, a removed endpoint stays for as long as its health checks succeed.
        "ignore_health_on_host_removal": True,
        **({"outlier_detection": _OUTLIERS} if is_tcp else {}),
        **({"health_checks": [_CHECK]} if check else {}),
    }
    if proxy_protocol and is_tcp:
        fields |= _announcing(proxy_protocol)
        if check:
            fields["health_checks"] = [{**_CHECK, "transport_socket_match_criteria": {"check": True}}]
    return messages.message(Kind.CLUSTERS, fields)


def _announcing(version: Literal[1, 2]) -> dict[str, Any]:
    """The fields of a cluster that sends PROXY headers."""
    plain = {"name": "envoy.transport_sockets.raw_buffer"}
    plain |= _any("extensions.transport_sockets.raw_buffer.v3.RawBuffer", {})
    announcing = {"config": {"version": f"V{version}"}, "transport_socket": plain}
    name = "extensions.transport_sockets.proxy_protocol.v3.ProxyProtocolUpstreamTransport"
    socket = {"name": "envoy.transport_sockets.upstream_proxy_protocol", **_any(name, announcing)}
    # Health checks go to another server, which does not expect the PROXY header.
    match = {"name": "check", "match": {"check": True}, "transport_socket": plain}
    return {"transport_socket": socket, "transport_socket_matches": [match]}


_OUTLIERS: dict[str, Any] = {
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

_CHECK: dict[str, Any] = {
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


def _tcp(listener: Listener) -> dict[str, Any]:
    proxy: dict[str, Any] = {
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
    chain: dict[str, Any] = {"filters": filters}
    if listener.allowed is not None:
        # Not an RBAC filter: it acts on the client's first byte, after a server that speaks first.
        ranges = _sources(listener.allowed, family(listener.address))
        chain["filter_chain_match"] = {"source_prefix_ranges": ranges}
    if not listener.hairpin:
        return {"filter_chains": [chain]}
    # Chains are of Envoy's own choice: that with the longest prefix of the client. When nodes change, only
    # theirs does, and connections of others go on.
    shares = [{"name": listener.name, "weight": len(listener.hairpin) - 1}, {"name": _NOWHERE, "weight": 1}]
    own = {**proxy, "weighted_clusters": {"clusters": [one for one in shares if one["weight"]]}}
    del own["cluster"]
    nodes = {
        "filters": [*filters[:-1], _typed("extensions.filters.network.tcp_proxy.v3.TcpProxy", own)],
        "filter_chain_match": {"source_prefix_ranges": _sources(listener.hairpin, family(listener.address))},
    }
    return {"filter_chains": [chain, nodes]}


def _udp(listener: Listener) -> dict[str, Any]:
    action = {"action": _typed("extensions.filters.udp.udp_proxy.v3.Route", {"cluster": listener.name})}
    matcher: dict[str, Any] = {"on_no_match": action}
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
    proxy: dict[str, Any] = {
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


def _may_fragment(address: str) -> dict[str, Any]:
    """Permits fragments. Envoy forbids them for QUIC, so that responses larger than the MTU would be lost."""
    level, name = _MTU_DISCOVERY[family(address)]
    # Envoy sets its own options before bind(), ours have to follow.
    return {"level": level, "name": name, "int_value": _MAY_FRAGMENT, "state": "STATE_BOUND"}


def _endpoint(one: Endpoint | Target, port: int, listener: Listener, unhealthy: Container[str]) -> Fields:
    """An endpoint of a list."""
    there: dict[str, Any] = {"hostname": one.name, "address": _address(one.address, port)}
    if listener.check:
        there["health_check_config"] = {"port_value": listener.check}
    found: dict[str, Any] = {"endpoint": there}
    if one.address in unhealthy:
        found["health_status"] = "UNHEALTHY"
    if listener.affinity:
        # The node's name, because ports differ: TCP and UDP of a client have to reach the same node.
        found["metadata"] = {"filter_metadata": {"envoy.lb": {"hash_key": one.name}}}
    return found


def _address(address: str, port: int) -> dict[str, Any]:
    return {"socket_address": {"address": address, "port_value": port}}


@lru_cache(maxsize=256)
def _sources(prefixes: tuple[str, ...], kind: Family) -> list[dict[str, Any]]:
    # Cached, because all listeners of a Service have the same prefixes.
    found = [ipaddress.ip_network(prefix.strip(), strict=False) for prefix in prefixes]
    mine: list[Any] = [network for network in found if f"IPv{network.version}" == kind]
    networks = list(ipaddress.collapse_addresses(mine)) or [ipaddress.ip_network(_NO_SOURCE[kind])]
    return [{"address_prefix": str(one.network_address), "prefix_len": one.prefixlen} for one in networks]


def _typed(name: str, config: Fields) -> dict[str, Any]:
    return {"name": name.rsplit(".", 1)[1], **_any(name, config)}


def _any(name: str, config: Fields) -> dict[str, Any]:
    return {"typed_config": {"@type": f"{_TYPES}.{name}", **config}}


def _seconds(wanted: float | None, otherwise: float) -> str:
    return f"{otherwise if wanted is None else wanted:g}s"
