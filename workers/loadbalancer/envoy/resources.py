"""The desired state of one Envoy, and its files. A resource that does not change keeps the same bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import orjson

from windowbox.errors import Malformed
from windowbox.models.loadbalancers import Listener, LoadBalancer
from windowbox.models.refs import ObjectRef
from workers.loadbalancer.envoy import bootstrap, jsonfiles, protobuf, rendering
from workers.loadbalancer.envoy.attachments import Published
from workers.loadbalancer.envoy.protobuf import Resource

_RUNTIME = "type.googleapis.com/envoy.service.runtime.v3.Runtime"

_CHECKS_PER_SECOND = 100
_INTERVALS = (500, 1500, 3000)
_INTERVAL_STEP = 5000

_DIGEST = 16


class Owner(NamedTuple):
    """A Service and its addresses."""

    cluster: str
    namespace: str
    name: str
    uid: str
    addresses: tuple[str, ...]


class Rendered(NamedTuple):
    """The resources of one load balancer, by the names of its listeners, and what they were made from."""

    balancer: LoadBalancer
    own_files: frozenset[str]
    """Its listeners whose endpoints are in a file of their own."""
    optionless: frozenset[str]
    listeners: Mapping[str, bytes]
    clusters: Mapping[str, bytes]
    endpoints: Mapping[str, bytes]
    warming: frozenset[str]
    checks: int
    """How many endpoints Envoy checks."""


@dataclass(frozen=True)
class Configuration:
    """The configuration of an Envoy: each resource as in a file, by the name of its listener."""

    listeners: Mapping[str, bytes]
    clusters: Mapping[str, bytes]
    endpoints: Mapping[str, bytes]
    """Of clusters that read theirs from a file of their own."""
    interval: int
    """The minimal milliseconds between two checks of an endpoint."""
    owners: tuple[Owner, ...] = ()
    optionless: frozenset[str] = field(default=frozenset(), compare=False)
    """Listeners from earlier versions of windowbox, whose sockets lack options. They must stay without.

    With other options, Envoy opens new sockets beside the old ones and no longer reads from those: while
    the old listener drains, half of all datagrams would be lost.
    """
    warming: frozenset[str] = field(default=frozenset(), compare=False)
    """Clusters for whose health checks or file Envoy waits before it serves them."""
    rendered: Mapping[ObjectRef, Rendered] = field(default_factory=dict, compare=False)
    """What each load balancer became: one that stays is not rendered again."""

    @cached_property
    def files(self) -> dict[str, bytes]:
        """In the order in which they can be written when nothing was removed."""
        owners = (_owner(owner) for owner in self.owners)
        return {
            **_runtime(self.interval),
            **{bootstrap.endpoints_file(name): _file([e]) for name, e in self.endpoints.items()},
            bootstrap.CLUSTERS: _file(self.clusters.values()),
            bootstrap.LISTENERS: _file(self.listeners.values()),
            bootstrap.OWNERS: _json(owners),
        }

    @property
    def published(self) -> list[Published]:
        """All ports of the listeners."""
        parts = (name.split("_") for name in self.listeners)
        return [
            Published(address, int(port), "TCP" if protocol == "tcp" else "UDP")
            for protocol, address, port in parts
        ]


NOTHING = Configuration({}, {}, {}, _INTERVALS[0])


def configuration(
    load_balancers: Collection[LoadBalancer],
    *,
    folder: str,
    eds: Collection[str] = (),
    optionless: Collection[str] = (),
    before: Configuration = NOTHING,
) -> Configuration:
    """The configuration for these load balancers. `eds` names the listeners whose endpoints get an own file.

    UDP flows survive a change of endpoints only if these come from such a file: Envoy ends the flows of a
    cluster that is replaced. Each such file costs Envoy an inotify instance, of which a host has few.
    `optionless` names the listeners whose sockets get no options.
    """
    lists, own, without = rendering.EndpointLists(), frozenset(eds), frozenset(optionless)
    found = {}
    for one in load_balancers:
        kept = before.rendered.get(one.ref)
        udp = (listener for listener in one.listeners if listener.protocol == "UDP")
        mine = _among(own, one.listeners), _among(without, udp)
        if kept is None or kept.balancer is not one or (kept.own_files, kept.optionless) != mine:
            kept = _rendered(one, lists, folder, *mine, kept)
        found[one.ref] = kept
    return Configuration(
        listeners=_by_name(one.listeners for one in found.values()),
        clusters=_by_name(one.clusters for one in found.values()),
        endpoints=_by_name(one.endpoints for one in found.values()),
        interval=check_interval(sum(one.checks for one in found.values())),
        owners=tuple(sorted(map(_owner_of, (one for one in load_balancers if one.addresses)))),
        optionless=frozenset().union(*(one.optionless for one in found.values())),
        warming=frozenset().union(*(one.warming for one in found.values())),
        rendered=found,
    )


def _among(names: Set[str], listeners: Iterable[Listener]) -> frozenset[str]:
    """The names that these listeners have."""
    return frozenset(one.name for one in listeners if one.name in names) if names else frozenset()


def _rendered(
    balancer: LoadBalancer,
    lists: rendering.EndpointLists,
    folder: str,
    own_files: frozenset[str],
    optionless: frozenset[str],
    before: Rendered | None,
) -> Rendered:
    wanted = balancer.listeners
    if before and before.balancer.listeners is wanted and before.optionless == optionless:
        listeners = before.listeners  # other nodes only
    else:
        listeners = {
            one.name: rendering.listener(one, socket_options=one.name not in optionless) for one in wanted
        }
    return Rendered(
        balancer,
        own_files,
        optionless,
        listeners,
        {one.name: lists.cluster(balancer, one, folder if one.name in own_files else None) for one in wanted},
        {one.name: lists.endpoints(balancer, one) for one in wanted if one.name in own_files},
        frozenset(one.name for one in wanted if one.check or one.name in own_files),
        sum(len(balancer.targets_of(one)) or len(one.endpoints) for one in wanted if one.check),
    )


def _by_name(parts: Iterable[Mapping[str, bytes]]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for one in parts:
        found |= one
    return {name: found[name] for name in sorted(found)}


def _owner_of(one: LoadBalancer) -> Owner:
    return Owner(one.ref.cluster, one.ref.namespace, one.ref.name, one.uid, one.addresses)


def parsed(files: Mapping[str, bytes]) -> Configuration:
    """The configuration in these files. Missing files are empty. Malformed if a file is damaged."""
    try:
        files = jsonfiles.binary(files)
        clusters = _entries(files.get(bootstrap.CLUSTERS))
        own_files = (bootstrap.endpoints_file(name) for name, one in clusters.items() if _is_eds(one))
        runtime = _values(files.get(bootstrap.RUNTIME)) or [{"layer": {}}]
        interval = runtime[0]["layer"].get("health_check", {}).get("min_interval", 0)
        owners = _values(files.get(bootstrap.OWNERS))
        listeners = _entries(files.get(bootstrap.LISTENERS))
        return Configuration(
            listeners=listeners,
            clusters=clusters,
            endpoints={name: one for file in own_files for name, one in _entries(files.get(file)).items()},
            interval=interval or _INTERVALS[0],
            owners=tuple(Owner(**{**one, "addresses": tuple(one["addresses"])}) for one in owners),
            optionless=frozenset(name for name, one in listeners.items() if rendering.lacks_options(one)),
            warming=frozenset(name for name, one in clusters.items() if _warms(one)),
        )
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise Malformed(f"files of an Envoy are damaged: {error}") from error


def are_usable(files: Mapping[str, bytes]) -> bool:
    """Whether an Envoy can be started with these files: all exist, and none is empty or truncated."""
    try:
        parsed(files)
        binary = [file for name, file in files.items() if name.endswith(".pb")]
        return jsonfiles.are_whole(files) and all(protobuf.entries(f) or protobuf.version(f) for f in binary)
    except (Malformed, ValueError, IndexError):
        return False


def in_one_file(found: Configuration) -> Configuration:
    """The same, with all endpoints in the file of the clusters."""
    clusters = dict(found.clusters)
    for name, endpoints in found.endpoints.items():
        cluster, assignment = protobuf.resource(clusters[name]), protobuf.resource(endpoints)
        for key in ("eds_cluster_config", "ignore_health_on_host_removal"):
            del cluster[key]
        del assignment["@type"]
        clusters[name] = protobuf.entry({**cluster, "type": "STATIC", "load_assignment": assignment})
    return replace(found, clusters=clusters, endpoints={}, rendered={})


def for_new_envoy(found: Configuration) -> Configuration:
    """The same, with all socket options: a new Envoy has no sockets without them yet."""
    if not found.optionless:
        return found
    listeners = {name: rendering.with_options(one) for name, one in found.listeners.items()}
    return replace(found, listeners=listeners, optionless=frozenset(), rendered={})


def steps(before: Configuration, after: Configuration) -> list[dict[str, bytes]]:
    """Files to write, step by step, so that no listener ever lacks its cluster; empty if nothing changes."""
    first = {name: file for name, file in after.files.items() if before.files.get(name) != file}
    if not before.clusters.keys() - after.clusters.keys():
        return [first] if first else []
    both = {**before.clusters, **after.clusters}
    first[bootstrap.CLUSTERS] = _file(both[name] for name in sorted(both))
    if first[bootstrap.CLUSTERS] == before.files[bootstrap.CLUSTERS]:
        del first[bootstrap.CLUSTERS]
    last = {bootstrap.CLUSTERS: after.files[bootstrap.CLUSTERS]}
    return [first, last] if first else [last]


def asking_often() -> dict[str, bytes]:
    """The runtime file with which Envoy soon repeats a health check that failed."""
    return _runtime(_INTERVALS[0])


def check_interval(checks: int) -> int:
    """Milliseconds between two checks of an endpoint: together, the checks have a limited rate.

    It grows in steps, because Envoy reads the runtime file again whenever it changes.
    """
    needed = checks * 1000 // _CHECKS_PER_SECOND
    fitting = [interval for interval in _INTERVALS if needed <= interval]
    return fitting[0] if fitting else -(-needed // _INTERVAL_STEP) * _INTERVAL_STEP


def file_names(clusters: bytes | None) -> list[str]:
    """All files of an Envoy with this file of clusters."""
    eds = [bootstrap.endpoints_file(name) for name, one in _entries(clusters).items() if _is_eds(one)]
    return [bootstrap.RUNTIME, *eds, bootstrap.CLUSTERS, bootstrap.LISTENERS, bootstrap.OWNERS]


def _warms(cluster: bytes) -> bool:
    """Whether Envoy waits for health checks or a file before it serves this cluster."""
    return protobuf.holds(cluster, "health_checks") or _is_eds(cluster)


def _file(entries: Iterable[bytes]) -> bytes:
    body = b"".join(entries)
    return protobuf.response(_digest(body), body)


def _runtime(interval: int) -> dict[str, bytes]:
    layer = {"health_check": {"min_interval": interval}}
    runtime = {"@type": _RUNTIME, "name": bootstrap.LAYER, "layer": layer}
    # Small files, and those that Envoy does not read, are JSON, for people.
    return {bootstrap.RUNTIME: _json([orjson.dumps(runtime, option=orjson.OPT_SORT_KEYS)])}


def _json(entries: Iterable[bytes]) -> bytes:
    body = b",".join(entries)
    return b'{"version_info":"%s","resources":[%s]}' % (_digest(body).encode(), body)


@lru_cache(maxsize=rendering.REMEMBERED)
def _owner(owner: Owner) -> bytes:
    return orjson.dumps(owner._asdict(), option=orjson.OPT_SORT_KEYS)


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:_DIGEST]


def _entries(file: bytes | None) -> dict[str, bytes]:
    """By the names of their resources."""
    return {protobuf.name_of(one): one for one in protobuf.entries(file or b"")}


def _values(file: bytes | None) -> list[Resource]:
    return [] if file is None else list(orjson.loads(file).get("resources", []))


def _is_eds(cluster: bytes) -> bool:
    """Whether its endpoints are in a file of their own."""
    return protobuf.holds(cluster, "eds_cluster_config")
