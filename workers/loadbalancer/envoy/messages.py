"""Envoy's messages, as far as windowbox writes them, with the numbers of their fields in Protobuf.

The numbers are those of Envoy's API (its descriptors are in PyPI's xds-protos, 1.85). Protobuf's rules forbid
that a number changes its meaning. A resource with a field that is missing here cannot be made: KeyError.
`tests/servers/envoy/test_binary.py` has Envoy itself tell what it has read.
"""

from __future__ import annotations

from enum import Enum, auto


class Scalar(Enum):
    """What a field holds that is not one of the messages below."""

    TEXT = auto()
    BOOL = auto()
    UINT = auto()
    DOUBLE = auto()
    BOOL_VALUE = auto()
    """A message that holds a bool, so that false differs from nothing."""
    UINT_VALUE = auto()
    DURATION = auto()
    """`0.3s`."""
    STRUCT = auto()
    """Any JSON object, here of texts and bools."""
    STRUCTS = auto()
    """Such objects by name."""
    ANY = auto()
    """A message that names its type as `@type`."""


Kind = Scalar | dict[str, int] | str
"""A scalar, the numbers of an enum's names, or a message's name."""

TEXT, BOOL, UINT, DOUBLE = Scalar.TEXT, Scalar.BOOL, Scalar.UINT, Scalar.DOUBLE
BOOL_VALUE, UINT_VALUE, DURATION = Scalar.BOOL_VALUE, Scalar.UINT_VALUE, Scalar.DURATION
STRUCT, STRUCTS, ANY = Scalar.STRUCT, Scalar.STRUCTS, Scalar.ANY

MESSAGES: dict[str, dict[str, tuple[int, Kind | list[Kind]]]] = {
    "envoy.config.cluster.v3.CircuitBreakers": {
        "thresholds": (1, ["envoy.config.cluster.v3.CircuitBreakers.Thresholds"]),
    },
    "envoy.config.cluster.v3.CircuitBreakers.Thresholds": {
        "max_connections": (2, UINT_VALUE),
        "max_pending_requests": (3, UINT_VALUE),
    },
    "envoy.config.cluster.v3.Cluster": {
        "name": (1, TEXT),
        "type": (2, {"STATIC": 0, "EDS": 3}),
        "eds_cluster_config": (3, "envoy.config.cluster.v3.Cluster.EdsClusterConfig"),
        "connect_timeout": (4, DURATION),
        "lb_policy": (6, {"RANDOM": 3, "MAGLEV": 5}),
        "health_checks": (8, ["envoy.config.core.v3.HealthCheck"]),
        "circuit_breakers": (10, "envoy.config.cluster.v3.CircuitBreakers"),
        "outlier_detection": (19, "envoy.config.cluster.v3.OutlierDetection"),
        "transport_socket": (24, "envoy.config.core.v3.TransportSocket"),
        "common_lb_config": (27, "envoy.config.cluster.v3.Cluster.CommonLbConfig"),
        "ignore_health_on_host_removal": (32, BOOL),
        "load_assignment": (33, "envoy.config.endpoint.v3.ClusterLoadAssignment"),
        "transport_socket_matches": (43, ["envoy.config.cluster.v3.Cluster.TransportSocketMatch"]),
    },
    "envoy.config.cluster.v3.Cluster.CommonLbConfig": {
        "healthy_panic_threshold": (1, "envoy.type.v3.Percent"),
        "update_merge_window": (4, DURATION),
    },
    "envoy.config.cluster.v3.Cluster.EdsClusterConfig": {
        "eds_config": (1, "envoy.config.core.v3.ConfigSource"),
        "service_name": (2, TEXT),
    },
    "envoy.config.cluster.v3.Cluster.TransportSocketMatch": {
        "name": (1, TEXT),
        "match": (2, STRUCT),
        "transport_socket": (3, "envoy.config.core.v3.TransportSocket"),
    },
    "envoy.config.cluster.v3.OutlierDetection": {
        "interval": (2, DURATION),
        "base_ejection_time": (3, DURATION),
        "max_ejection_percent": (4, UINT_VALUE),
        "split_external_local_origin_errors": (12, BOOL),
        "consecutive_local_origin_failure": (13, UINT_VALUE),
        "enforcing_local_origin_success_rate": (15, UINT_VALUE),
        "max_ejection_time": (21, DURATION),
    },
    "envoy.config.core.v3.Address": {
        "socket_address": (1, "envoy.config.core.v3.SocketAddress"),
    },
    "envoy.config.core.v3.BackoffStrategy": {
        "base_interval": (1, DURATION),
        "max_interval": (2, DURATION),
    },
    "envoy.config.core.v3.CidrRange": {
        "address_prefix": (1, TEXT),
        "prefix_len": (2, UINT_VALUE),
    },
    "envoy.config.core.v3.ConfigSource": {
        "resource_api_version": (6, {"V3": 2}),
        "path_config_source": (8, "envoy.config.core.v3.PathConfigSource"),
    },
    "envoy.config.core.v3.HealthCheck": {
        "timeout": (1, DURATION),
        "interval": (2, DURATION),
        "unhealthy_threshold": (4, UINT_VALUE),
        "healthy_threshold": (5, UINT_VALUE),
        "reuse_connection": (7, BOOL_VALUE),
        "http_health_check": (8, "envoy.config.core.v3.HealthCheck.HttpHealthCheck"),
        "no_traffic_interval": (12, DURATION),
        "unhealthy_interval": (14, DURATION),
        "unhealthy_edge_interval": (15, DURATION),
        "interval_jitter_percent": (18, UINT),
        "transport_socket_match_criteria": (23, STRUCT),
        "no_traffic_healthy_interval": (24, DURATION),
    },
    "envoy.config.core.v3.HealthCheck.HttpHealthCheck": {
        "host": (1, TEXT),
        "path": (2, TEXT),
        "retriable_statuses": (12, ["envoy.type.v3.Int64Range"]),
    },
    "envoy.config.core.v3.Metadata": {
        "filter_metadata": (1, STRUCTS),
    },
    "envoy.config.core.v3.PathConfigSource": {
        "path": (1, TEXT),
    },
    "envoy.config.core.v3.ProxyProtocolConfig": {
        "version": (1, {"V1": 0, "V2": 1}),
    },
    "envoy.config.core.v3.SocketAddress": {
        "protocol": (1, {"TCP": 0, "UDP": 1}),
        "address": (2, TEXT),
        "port_value": (3, UINT),
    },
    "envoy.config.core.v3.SocketOption": {
        "level": (2, UINT),
        "name": (3, UINT),
        "int_value": (4, UINT),
        "state": (6, {"STATE_BOUND": 1}),
    },
    "envoy.config.core.v3.TransportSocket": {
        "name": (1, TEXT),
        "typed_config": (3, ANY),
    },
    "envoy.config.core.v3.UdpSocketConfig": {
        "max_rx_datagram_size": (1, UINT_VALUE),
    },
    "envoy.config.endpoint.v3.ClusterLoadAssignment": {
        "cluster_name": (1, TEXT),
        "endpoints": (2, ["envoy.config.endpoint.v3.LocalityLbEndpoints"]),
    },
    "envoy.config.endpoint.v3.Endpoint": {
        "address": (1, "envoy.config.core.v3.Address"),
        "health_check_config": (2, "envoy.config.endpoint.v3.Endpoint.HealthCheckConfig"),
        "hostname": (3, TEXT),
    },
    "envoy.config.endpoint.v3.Endpoint.HealthCheckConfig": {
        "port_value": (1, UINT),
    },
    "envoy.config.endpoint.v3.LbEndpoint": {
        "endpoint": (1, "envoy.config.endpoint.v3.Endpoint"),
        "health_status": (2, {"UNHEALTHY": 2}),
        "metadata": (3, "envoy.config.core.v3.Metadata"),
    },
    "envoy.config.endpoint.v3.LocalityLbEndpoints": {
        "lb_endpoints": (2, ["envoy.config.endpoint.v3.LbEndpoint"]),
    },
    "envoy.config.listener.v3.Filter": {
        "name": (1, TEXT),
        "typed_config": (4, ANY),
    },
    "envoy.config.listener.v3.FilterChain": {
        "filter_chain_match": (1, "envoy.config.listener.v3.FilterChainMatch"),
        "filters": (3, ["envoy.config.listener.v3.Filter"]),
    },
    "envoy.config.listener.v3.FilterChainMatch": {
        "source_prefix_ranges": (6, ["envoy.config.core.v3.CidrRange"]),
    },
    "envoy.config.listener.v3.Listener": {
        "name": (1, TEXT),
        "address": (2, "envoy.config.core.v3.Address"),
        "filter_chains": (3, ["envoy.config.listener.v3.FilterChain"]),
        "listener_filters": (9, ["envoy.config.listener.v3.ListenerFilter"]),
        "freebind": (11, BOOL_VALUE),
        "socket_options": (13, ["envoy.config.core.v3.SocketOption"]),
        "udp_listener_config": (18, "envoy.config.listener.v3.UdpListenerConfig"),
        "stat_prefix": (28, TEXT),
    },
    "envoy.config.listener.v3.ListenerFilter": {
        "name": (1, TEXT),
        "typed_config": (3, ANY),
    },
    "envoy.config.listener.v3.UdpListenerConfig": {
        "downstream_socket_config": (5, "envoy.config.core.v3.UdpSocketConfig"),
    },
    "envoy.extensions.filters.network.connection_limit.v3.ConnectionLimit": {
        "stat_prefix": (1, TEXT),
        "max_connections": (2, UINT_VALUE),
    },
    "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy": {
        "stat_prefix": (1, TEXT),
        "cluster": (2, TEXT),
        "max_connect_attempts": (7, UINT_VALUE),
        "idle_timeout": (8, DURATION),
        "hash_policy": (11, ["envoy.type.v3.HashPolicy"]),
        "backoff_options": (18, "envoy.config.core.v3.BackoffStrategy"),
    },
    "envoy.extensions.filters.udp.udp_proxy.v3.Route": {
        "cluster": (1, TEXT),
    },
    "envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig": {
        "stat_prefix": (1, TEXT),
        "idle_timeout": (3, DURATION),
        "hash_policies": (5, ["envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig.HashPolicy"]),
        "upstream_socket_config": (6, "envoy.config.core.v3.UdpSocketConfig"),
        "matcher": (9, "xds.type.matcher.v3.Matcher"),
    },
    "envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig.HashPolicy": {
        "source_ip": (1, BOOL),
    },
    "envoy.extensions.matching.common_inputs.network.v3.SourceIPInput": {},
    "envoy.extensions.transport_sockets.proxy_protocol.v3.ProxyProtocolUpstreamTransport": {
        "config": (1, "envoy.config.core.v3.ProxyProtocolConfig"),
        "transport_socket": (2, "envoy.config.core.v3.TransportSocket"),
    },
    "envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer": {},
    "envoy.type.v3.HashPolicy": {
        "source_ip": (1, "envoy.type.v3.HashPolicy.SourceIp"),
    },
    "envoy.type.v3.HashPolicy.SourceIp": {},
    "envoy.type.v3.Int64Range": {
        "start": (1, UINT),
        "end": (2, UINT),
    },
    "envoy.type.v3.Percent": {
        "value": (1, DOUBLE),
    },
    "xds.core.v3.CidrRange": {
        "address_prefix": (1, TEXT),
        "prefix_len": (2, UINT_VALUE),
    },
    "xds.core.v3.TypedExtensionConfig": {
        "name": (1, TEXT),
        "typed_config": (2, ANY),
    },
    "xds.type.matcher.v3.IPMatcher": {
        "range_matchers": (1, ["xds.type.matcher.v3.IPMatcher.IPRangeMatcher"]),
    },
    "xds.type.matcher.v3.IPMatcher.IPRangeMatcher": {
        "ranges": (1, ["xds.core.v3.CidrRange"]),
        "on_match": (2, "xds.type.matcher.v3.Matcher.OnMatch"),
    },
    "xds.type.matcher.v3.Matcher": {
        "matcher_tree": (2, "xds.type.matcher.v3.Matcher.MatcherTree"),
        "on_no_match": (3, "xds.type.matcher.v3.Matcher.OnMatch"),
    },
    "xds.type.matcher.v3.Matcher.MatcherTree": {
        "input": (1, "xds.core.v3.TypedExtensionConfig"),
        "custom_match": (4, "xds.core.v3.TypedExtensionConfig"),
    },
    "xds.type.matcher.v3.Matcher.OnMatch": {
        "action": (2, "xds.core.v3.TypedExtensionConfig"),
    },
}
