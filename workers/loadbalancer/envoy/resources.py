"""The desired state of one Envoy, and its files. What does not change keeps the same bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import orjson

from windowbox.errors import Malformed
from windowbox.models.loadbalancers import LoadBalancer
from workers.loadbalancer.envoy import bootstrap, jsonfiles, protobuf, rendering
from workers.loadbalancer.envoy.attachments import Published
from workers.loadbalancer.envoy.protobuf import Resource

_RUNTIME = "type.googleapis.com/envoy.service.runtime.v3.Runtime"

_CHECKS_PER_SECOND = 100
_INTERVALS = (500, 1500, 3000)
_INTERVAL_STEP = 5000

_DIGEST = 16


class Owner(NamedTuple):
    """A Service, and its addresses."""

    cluster: str
    namespace: str
    name: str
    uid: str
    addresses: tuple[str, ...]


@dataclass(frozen=True)
class Configuration:
    """What an Envoy is to serve: each resource as it stands in a file, by the name of its listener."""

    listeners: Mapping[str, bytes]
    clusters: Mapping[str, bytes]
    endpoints: Mapping[str, bytes]
    """Of clusters that read theirs from a file of their own."""
    interval: int
    """Milliseconds between two checks of an endpoint, at least."""
    owners: tuple[Owner, ...] = ()

    @cached_property
    def files(self) -> dict[str, bytes]:
        """In the order in which they can be written when nothing was removed."""
        return {
            bootstrap.RUNTIME: _json([_runtime(self.interval)]),
            **{bootstrap.endpoints_file(name): _file([e]) for name, e in self.endpoints.items()},
            bootstrap.CLUSTERS: _file(self.clusters.values()),
            bootstrap.LISTENERS: _file(self.listeners.values()),
            bootstrap.OWNERS: _joined(map(_owner, self.owners)),
        }

    @cached_property
    def optionless(self) -> frozenset[str]:
        """Listeners of an Envoy of earlier versions, whose sockets lack options, and keep lacking them.

        Given other options, Envoy opens sockets beside those that it has, and reads no longer from these: for
        as long as the old listener drains, half of all datagrams would be lost.
        """
        return frozenset(name for name, one in self.listeners.items() if rendering.lacks_options(one))

    @property
    def published(self) -> list[Published]:
        """All ports at which clients arrive."""
        return [_published(name) for name in self.listeners]


NOTHING = Configuration({}, {}, {}, _INTERVALS[0])


def configuration(
    load_balancers: Collection[LoadBalancer],
    *,
    folder: str,
    eds: Collection[str] = (),
    optionless: Collection[str] = (),
) -> Configuration:
    """What serves these load balancers. `eds` names the listeners whose endpoints get a file of their own.

    UDP flows outlive a change of endpoints only if these come from such a file: a cluster that is replaced
    ends its flows. Each such file costs Envoy an inotify instance, of which a host has few. `optionless`
    names those whose sockets get no options.
    """
    wanted = sorted((one for lb in load_balancers for one in lb.listeners), key=lambda one: one.name)
    owners = (
        Owner(lb.ref.cluster, lb.ref.namespace, lb.ref.name, lb.uid, lb.addresses)
        for lb in load_balancers
        if lb.addresses
    )
    return Configuration(
        listeners={
            one.name: rendering.listener(one, socket_options=one.name not in optionless) for one in wanted
        },
        clusters={one.name: rendering.cluster(one, folder if one.name in eds else None) for one in wanted},
        endpoints={one.name: rendering.endpoints(one) for one in wanted if one.name in eds},
        interval=check_interval(sum(len(one.endpoints) for one in wanted if one.check)),
        owners=tuple(sorted(owners)),
    )


def parsed(files: Mapping[str, bytes]) -> Configuration:
    """What is in such files. What is missing is empty. Malformed if a file is damaged."""
    try:
        return _parsed(files)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise Malformed(f"files of an Envoy are damaged: {error}") from error


def are_usable(files: Mapping[str, bytes]) -> bool:
    """Whether an Envoy can be started with these files: all are there, and none is empty or ends early."""
    try:
        parsed(files)
        binary = [file for name, file in files.items() if name.endswith(".pb")]
        return jsonfiles.are_whole(files) and all(protobuf.entries(f) or protobuf.version(f) for f in binary)
    except (Malformed, ValueError, IndexError):
        return False


def _parsed(files: Mapping[str, bytes]) -> Configuration:
    files = jsonfiles.binary(files)
    clusters = _entries(files, bootstrap.CLUSTERS)
    apart = [name for name, one in clusters.items() if _reads_endpoints(one)]
    own_files = (_entries(files, bootstrap.endpoints_file(name)) for name in apart)
    endpoints = {name: one for found in own_files for name, one in found.items()}
    runtime = _values(files, bootstrap.RUNTIME) or [{"layer": {}}]
    interval = runtime[0]["layer"].get("health_check", {}).get("min_interval", 0)
    return Configuration(
        listeners=_entries(files, bootstrap.LISTENERS),
        clusters=clusters,
        endpoints=endpoints,
        interval=interval or _INTERVALS[0],
        owners=tuple(
            Owner(**{**one, "addresses": tuple(one["addresses"])}) for one in _values(files, bootstrap.OWNERS)
        ),
    )


def in_one_file(found: Configuration) -> Configuration:
    """The same, with all endpoints where their clusters are."""
    clusters = dict(found.clusters)
    for name, endpoints in found.endpoints.items():
        cluster, assignment = protobuf.resource(clusters[name]), protobuf.resource(endpoints)
        for key in ("eds_cluster_config", "ignore_health_on_host_removal"):
            del cluster[key]
        del assignment["@type"]
        clusters[name] = protobuf.entry({**cluster, "type": "STATIC", "load_assignment": assignment})
    return replace(found, clusters=clusters, endpoints={})


def for_new_envoy(found: Configuration) -> Configuration:
    """The same, with the options that sockets get when they are opened."""
    if not found.optionless:
        return found
    return replace(found, listeners={k: rendering.with_options(one) for k, one in found.listeners.items()})


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


def asking_often() -> dict[str, bytes]:
    """What makes Envoy look again soon at endpoints that did not answer, for as long as it stands there."""
    return {bootstrap.RUNTIME: _json([_runtime(_INTERVALS[0])])}


def check_interval(checks: int) -> int:
    """Milliseconds between two checks of an endpoint, so that all together are no more than a host bears.

    In steps: what counts here is told to Envoy again whenever it changes.
    """
    needed = checks * 1000 // _CHECKS_PER_SECOND
    fitting = [interval for interval in _INTERVALS if needed <= interval]
    return fitting[0] if fitting else -(-needed // _INTERVAL_STEP) * _INTERVAL_STEP


def file_names(clusters: bytes | None) -> list[str]:
    """The files that belong to this file of clusters, itself among them."""
    found = _entries({bootstrap.CLUSTERS: clusters} if clusters else {}, bootstrap.CLUSTERS)
    apart = [bootstrap.endpoints_file(name) for name, one in found.items() if _reads_endpoints(one)]
    return [bootstrap.RUNTIME, *apart, bootstrap.CLUSTERS, bootstrap.LISTENERS, bootstrap.OWNERS]


def warms(cluster: bytes) -> bool:
    """Whether Envoy waits for something else before a cluster like this serves."""
    return protobuf.holds(cluster, "health_checks") or _reads_endpoints(cluster)


def _file(entries: Iterable[bytes]) -> bytes:
    body = b"".join(entries)
    return protobuf.response(_digest(body), body)


def _json(found: Iterable[Resource]) -> bytes:
    """What is small, or not for Envoy, people can read."""
    return _joined(orjson.dumps(one, option=orjson.OPT_SORT_KEYS) for one in found)


@lru_cache(maxsize=rendering.REMEMBERED)
def _owner(owner: Owner) -> bytes:
    return orjson.dumps(owner._asdict(), option=orjson.OPT_SORT_KEYS)


def _joined(entries: Iterable[bytes]) -> bytes:
    body = b",".join(entries)
    return b'{"version_info":"%s","resources":[%s]}' % (_digest(body).encode(), body)


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:_DIGEST]


def _entries(files: Mapping[str, bytes], name: str) -> dict[str, bytes]:
    """By the names of their resources."""
    return {protobuf.name_of(one): one for one in protobuf.entries(files.get(name, b""))}


def _values(files: Mapping[str, bytes], name: str) -> list[Resource]:
    return list(orjson.loads(files[name]).get("resources", [])) if name in files else []


def _reads_endpoints(cluster: bytes) -> bool:
    """Whether its endpoints are in a file of their own."""
    return protobuf.holds(cluster, "eds_cluster_config")


def _runtime(interval: int) -> Resource:
    layer = {"health_check": {"min_interval": interval}}
    return {"@type": _RUNTIME, "name": bootstrap.LAYER, "layer": layer}


def _published(name: str) -> Published:
    protocol, address, port = name.split("_")
    return Published(address, int(port), "TCP" if protocol == "tcp" else "UDP")
