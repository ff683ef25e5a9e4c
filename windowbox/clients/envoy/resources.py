"""Envoy's listeners and clusters, made from load balancers. Whatever does not change stays the same bytes."""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import orjson

from windowbox.clients.envoy import bootstrap
from windowbox.clients.envoy.attachments import Published
from windowbox.models.loadbalancers import Endpoint, Listener, LoadBalancer, family

Resource = dict[str, Any]

_TYPES = "type.googleapis.com/envoy"
_CLUSTER = f"{_TYPES}.config.cluster.v3.Cluster"
_LISTENER = f"{_TYPES}.config.listener.v3.Listener"
_ASSIGNMENT = f"{_TYPES}.config.endpoint.v3.ClusterLoadAssignment"
_RUNTIME = f"{_TYPES}.service.runtime.v3.Runtime"

_TCP_IDLE = 3600.0
_UDP_IDLE = 60.0
_LARGEST_DATAGRAM = 65535

_CONNECT_TIMEOUT = "1s"
_CONNECT_ATTEMPTS = 10
"""Each attempt that fails takes one endpoint out, and the next one goes to another."""

_CHECK_TIMEOUT = "1s"
_CHECK_INTERVAL = "3s"
_RECOVERY_INTERVAL = "0.5s"
"""For who is not healthy. Shorter than two failures take: when Pods move from one node to another, and both
answer otherwise from then on, the other has to be in before the one is out."""
_CHECKS_PER_SECOND = 100
_INTERVALS = (500, 1000, 2000, 3000)
_INTERVAL_STEP = 5000

_HEAD = b'{"version_info":"'
_DIGEST = 16
_REMEMBERED = 16384
"""Resources that are not made anew each time. What stays the same is most of what is written."""

_NOBODY = {"IPv4": "0.0.0.0/32", "IPv6": "::/128"}
"""A source that no packet has, for listeners that nobody may use."""


@dataclass(frozen=True)
class Configuration:
    """What an Envoy is to serve: each resource as it stands in a file, by the name of its listener."""

    listeners: Mapping[str, bytes]
    clusters: Mapping[str, bytes]
    endpoints: Mapping[str, bytes]
    """Of clusters that read theirs from a file of their own."""
    interval: int
    """Milliseconds between two checks of an endpoint, at least."""

    @cached_property
    def files(self) -> dict[str, bytes]:
        """In the order in which they can be written when nothing was removed."""
        return {
            bootstrap.RUNTIME: _file([_runtime(self.interval)]),
            **{endpoints_file(name): _file([e]) for name, e in self.endpoints.items()},
            bootstrap.CLUSTERS: _file(self.clusters.values()),
            bootstrap.LISTENERS: _file(self.listeners.values()),
        }

    @property
    def published(self) -> list[Published]:
        """All ports at which clients arrive."""
        return [_published(name) for name in self.listeners]


NOTHING = Configuration({}, {}, {}, _INTERVALS[0])


def configuration(
    load_balancers: Iterable[LoadBalancer], *, folder: str, eds: Collection[str] = ()
) -> Configuration:
    """What serves these load balancers. `eds` names the listeners whose endpoints get a file of their own.

    UDP flows outlive a change of endpoints only if these come from such a file: a cluster that is replaced
    ends its flows. Each such file costs Envoy an inotify instance, of which a host has few.
    """
    wanted = sorted((one for lb in load_balancers for one in lb.listeners), key=lambda one: one.name)
    return Configuration(
        listeners={one.name: _listener(one) for one in wanted},
        clusters={one.name: _cluster(one, folder if one.name in eds else None) for one in wanted},
        endpoints={one.name: _apart(one) for one in wanted if one.name in eds},
        interval=check_interval(sum(len(one.endpoints) for one in wanted if one.check)),
    )


def parsed(files: Mapping[str, bytes]) -> Configuration:
    """What is in such files. What is missing is empty."""
    clusters = _resources(files, bootstrap.CLUSTERS)
    apart = [one["name"] for one in clusters if one["type"] == "EDS"]
    endpoints = {name: one for name in apart for one in _resources(files, endpoints_file(name))}
    runtime = _resources(files, bootstrap.RUNTIME) or [{"layer": {}}]
    interval = runtime[0]["layer"].get("health_check", {}).get("min_interval", 0)
    return Configuration(
        listeners={one["name"]: _dumped(one) for one in _resources(files, bootstrap.LISTENERS)},
        clusters={one["name"]: _dumped(one) for one in clusters},
        endpoints={name: _dumped(one) for name, one in endpoints.items()},
        interval=interval or _INTERVALS[0],
    )


def in_one_file(found: Configuration) -> Configuration:
    """The same, with all endpoints where their clusters are."""
    clusters = dict(found.clusters)
    for name, endpoints in found.endpoints.items():
        cluster, assignment = orjson.loads(clusters[name]), orjson.loads(endpoints)
        for key in ("eds_cluster_config", "ignore_health_on_host_removal"):
            del cluster[key]
        del assignment["@type"]
        clusters[name] = _dumped({**cluster, "type": "STATIC", "load_assignment": assignment})
    return replace(found, clusters=clusters, endpoints={})


def steps(before: Configuration, after: Configuration) -> list[dict[str, bytes]]:
    """What to write, one after the other, so that no listener ever lacks its cluster; empty if nothing."""
    if before == after:
        return []
    first = {name: file for name, file in after.files.items() if before.files.get(name) != file}
    if not before.clusters.keys() - after.clusters.keys():
        return [first] if first else []
    both = {**before.clusters, **after.clusters}
    first[bootstrap.CLUSTERS] = _file(both[name] for name in sorted(both))
    if first[bootstrap.CLUSTERS] == before.files[bootstrap.CLUSTERS]:
        del first[bootstrap.CLUSTERS]
    last = {bootstrap.CLUSTERS: after.files[bootstrap.CLUSTERS]}
    return [first, last] if first else [last]


def check_interval(checks: int) -> int:
    """Milliseconds between two checks of an endpoint, so that all together are no more than a host bears.

    In steps: what counts here is told to Envoy again whenever it changes.
    """
    needed = checks * 1000 // _CHECKS_PER_SECOND
    fitting = [interval for interval in _INTERVALS if needed <= interval]
    return fitting[0] if fitting else -(-needed // _INTERVAL_STEP) * _INTERVAL_STEP


def endpoints_file(name: str) -> str:
    return f"eds_{name.replace(':', '-')}.json"


def file_names(clusters: bytes | None) -> list[str]:
    """The files that belong to this file of clusters, itself among them."""
    files = {bootstrap.CLUSTERS: clusters} if clusters else {}
    apart = [one["name"] for one in _resources(files, bootstrap.CLUSTERS) if one["type"] == "EDS"]
    return [bootstrap.RUNTIME, *map(endpoints_file, apart), bootstrap.CLUSTERS, bootstrap.LISTENERS]


def version(file: bytes) -> str:
    """What Envoy calls a file's content once it has taken it."""
    return file[len(_HEAD) : len(_HEAD) + _DIGEST].decode()


def _file(found: Iterable[bytes]) -> bytes:
    body = b",".join(found)
    digest = hashlib.sha256(body).hexdigest()[:_DIGEST].encode()
    return b'%s%s","resources":[%s]}' % (_HEAD, digest, body)


def _resources(files: Mapping[str, bytes], name: str) -> list[Resource]:
    return list(orjson.loads(files[name]).get("resources", [])) if name in files else []


def _dumped(resource: Resource) -> bytes:
    return orjson.dumps(resource, option=orjson.OPT_SORT_KEYS)


def _runtime(interval: int) -> bytes:
    layer = {"health_check": {"min_interval": interval}}
    return _dumped({"@type": _RUNTIME, "name": bootstrap.LAYER, "layer": layer})


def _published(name: str) -> Published:
    protocol, address, port = name.split("_")
    return Published(address, int(port), "TCP" if protocol == "tcp" else "UDP")


@lru_cache(maxsize=_REMEMBERED)
def _listener(listener: Listener) -> bytes:
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
    return _dumped(resource)


def _tcp(listener: Listener) -> Resource:
    chain: Resource = {"filters": [*_limit(listener), _tcp_proxy(listener)]}
    if listener.allowed is not None:
        # Not a filter for access: those act on the first byte of a client, and until then a server that
        # speaks first is heard.
        ranges = [_prefix(network) for network in _sources(listener)]
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


def _matcher(listener: Listener) -> Resource:
    action = {"action": _typed("extensions.filters.udp.udp_proxy.v3.Route", {"cluster": listener.name})}
    if listener.allowed is None:
        return {"on_no_match": action}
    ranges = [_prefix(network) for network in _sources(listener)]
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


@lru_cache(maxsize=_REMEMBERED)
def _cluster(listener: Listener, folder: str | None) -> bytes:
    cluster: Resource = {
        "@type": _CLUSTER,
        "name": listener.name,
        "connect_timeout": _CONNECT_TIMEOUT,
        "lb_policy": "MAGLEV" if listener.affinity else "RANDOM",
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
        cluster["outlier_detection"] = _outliers()
    if listener.check:
        cluster["health_checks"] = [_check()]
    if listener.proxy_protocol and listener.protocol == "TCP":
        cluster |= _announcing_clients(listener.proxy_protocol)
        for check in cluster.get("health_checks", []):
            check["transport_socket_match_criteria"] = {"check": True}
    return _dumped(cluster)


def _endpoints(listener: Listener, folder: str | None) -> Resource:
    if folder is None:
        return {"type": "STATIC", "load_assignment": _assignment(listener)}
    path = f"{folder}/{endpoints_file(listener.name)}"
    source = {"resource_api_version": "V3", "path_config_source": {"path": path}}
    return {
        "type": "EDS",
        "eds_cluster_config": {"service_name": listener.name, "eds_config": source},
        # Otherwise those that are healthy stay for ever.
        "ignore_health_on_host_removal": True,
    }


def _outliers() -> Resource:
    """An endpoint that cannot be connected to is left out until its check has succeeded, or for a moment.

    Never the last one: a percentage of 99 leaves one of up to a hundred.
    """
    return {
        "split_external_local_origin_errors": True,
        "consecutive_local_origin_failure": 1,
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
        "unhealthy_edge_interval": "1s",
        "unhealthy_interval": _RECOVERY_INTERVAL,
        # Whoever is not healthy gets no traffic; often kube-proxy has only not heard of the Service yet.
        "no_traffic_interval": _RECOVERY_INTERVAL,
        "interval_jitter_percent": 10,
        "unhealthy_threshold": 2,
        "healthy_threshold": 1,
        # A connection kept open for each endpoint of each listener would cost memory and descriptors.
        "reuse_connection": False,
        "http_health_check": {"path": "/healthz", "host": "windowbox"},
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


def _apart(listener: Listener) -> bytes:
    return _dumped({"@type": _ASSIGNMENT, **_assignment(listener)})


def _assignment(listener: Listener) -> Resource:
    endpoints = () if listener.vacant else listener.endpoints
    found = [_endpoint(e, listener) for e in sorted(endpoints, key=_by_name)]
    return {"cluster_name": listener.name, "endpoints": [{"lb_endpoints": found}]}


def _by_name(endpoint: Endpoint) -> tuple[str, str, int]:
    return endpoint.name, endpoint.address, endpoint.port


def _endpoint(endpoint: Endpoint, listener: Listener) -> Resource:
    found: Resource = {"hostname": endpoint.name, "address": _address(endpoint.address, endpoint.port)}
    if listener.check:
        found["health_check_config"] = {"port_value": listener.check}
    if not listener.affinity:
        return {"endpoint": found}
    # By name, as ports differ: TCP and UDP are to agree on the node.
    return {"endpoint": found, "metadata": {"filter_metadata": {"envoy.lb": {"hash_key": endpoint.name}}}}


def _address(address: str, port: int) -> Resource:
    return {"socket_address": {"address": address, "port_value": port}}


def _sources(listener: Listener) -> list[str]:
    kind = family(listener.address)
    found = [ipaddress.ip_network(prefix.strip(), strict=False) for prefix in listener.allowed or ()]
    if kind == "IPv4":
        v4 = [n for n in found if isinstance(n, ipaddress.IPv4Network)]
        return [str(n) for n in ipaddress.collapse_addresses(v4)] or [_NOBODY[kind]]
    v6 = [n for n in found if isinstance(n, ipaddress.IPv6Network)]
    return [str(n) for n in ipaddress.collapse_addresses(v6)] or [_NOBODY[kind]]


def _prefix(network: str) -> Resource:
    address, _, length = network.partition("/")
    return {"address_prefix": address, "prefix_len": int(length)}


def _typed(name: str, config: Resource) -> Resource:
    return {"name": name.rsplit(".", 1)[1], **_any(name, config)}


def _any(name: str, config: Resource) -> Resource:
    return {"typed_config": {"@type": f"{_TYPES}.{name}", **config}}


def _seconds(wanted: float | None, otherwise: float) -> str:
    return f"{otherwise if wanted is None else wanted:g}s"
