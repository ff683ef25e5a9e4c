"""What an Envoy is to serve, and the files that tell it so. Whatever does not change stays the same bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import orjson

from windowbox.clients.envoy import bootstrap, rendering
from windowbox.clients.envoy.attachments import Published
from windowbox.clients.envoy.rendering import Resource
from windowbox.models.loadbalancers import LoadBalancer

_RUNTIME = "type.googleapis.com/envoy.service.runtime.v3.Runtime"

_CHECKS_PER_SECOND = 100
_INTERVALS = (500, 1500, 3000)
_INTERVAL_STEP = 5000

_HEAD = b'{"version_info":"'
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
            bootstrap.RUNTIME: _file([_runtime(self.interval)]),
            **{bootstrap.endpoints_file(name): _file([e]) for name, e in self.endpoints.items()},
            bootstrap.CLUSTERS: _file(self.clusters.values()),
            bootstrap.LISTENERS: _file(self.listeners.values()),
            bootstrap.OWNERS: _file(rendering.dumped(owner._asdict()) for owner in self.owners),
        }

    @property
    def published(self) -> list[Published]:
        """All ports at which clients arrive."""
        return [_published(name) for name in self.listeners]


NOTHING = Configuration({}, {}, {}, _INTERVALS[0])


def configuration(
    load_balancers: Collection[LoadBalancer], *, folder: str, eds: Collection[str] = ()
) -> Configuration:
    """What serves these load balancers. `eds` names the listeners whose endpoints get a file of their own.

    UDP flows outlive a change of endpoints only if these come from such a file: a cluster that is replaced
    ends its flows. Each such file costs Envoy an inotify instance, of which a host has few.
    """
    wanted = sorted((one for lb in load_balancers for one in lb.listeners), key=lambda one: one.name)
    owners = (
        Owner(lb.ref.cluster, lb.ref.namespace, lb.ref.name, lb.uid, lb.addresses)
        for lb in load_balancers
        if lb.addresses
    )
    return Configuration(
        listeners={one.name: rendering.listener(one) for one in wanted},
        clusters={one.name: rendering.cluster(one, folder if one.name in eds else None) for one in wanted},
        endpoints={one.name: rendering.endpoints(one) for one in wanted if one.name in eds},
        interval=check_interval(sum(len(one.endpoints) for one in wanted if one.check)),
        owners=tuple(sorted(owners)),
    )


def parsed(files: Mapping[str, bytes]) -> Configuration:
    """What is in such files. What is missing is empty."""
    clusters = _resources(files, bootstrap.CLUSTERS)
    apart = [one["name"] for one in clusters if one["type"] == "EDS"]
    endpoints = {name: one for name in apart for one in _resources(files, bootstrap.endpoints_file(name))}
    runtime = _resources(files, bootstrap.RUNTIME) or [{"layer": {}}]
    interval = runtime[0]["layer"].get("health_check", {}).get("min_interval", 0)
    return Configuration(
        listeners={one["name"]: rendering.dumped(one) for one in _resources(files, bootstrap.LISTENERS)},
        clusters={one["name"]: rendering.dumped(one) for one in clusters},
        endpoints={name: rendering.dumped(one) for name, one in endpoints.items()},
        interval=interval or _INTERVALS[0],
        owners=tuple(
            Owner(**{**one, "addresses": tuple(one["addresses"])})
            for one in _resources(files, bootstrap.OWNERS)
        ),
    )


def in_one_file(found: Configuration) -> Configuration:
    """The same, with all endpoints where their clusters are."""
    clusters = dict(found.clusters)
    for name, endpoints in found.endpoints.items():
        cluster, assignment = orjson.loads(clusters[name]), orjson.loads(endpoints)
        for key in ("eds_cluster_config", "ignore_health_on_host_removal"):
            del cluster[key]
        del assignment["@type"]
        clusters[name] = rendering.dumped({**cluster, "type": "STATIC", "load_assignment": assignment})
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


def asking_often() -> dict[str, bytes]:
    """What makes Envoy look again soon at endpoints that did not answer, for as long as it stands there."""
    return {bootstrap.RUNTIME: _file([_runtime(_INTERVALS[0])])}


def check_interval(checks: int) -> int:
    """Milliseconds between two checks of an endpoint, so that all together are no more than a host bears.

    In steps: what counts here is told to Envoy again whenever it changes.
    """
    needed = checks * 1000 // _CHECKS_PER_SECOND
    fitting = [interval for interval in _INTERVALS if needed <= interval]
    return fitting[0] if fitting else -(-needed // _INTERVAL_STEP) * _INTERVAL_STEP


def file_names(clusters: bytes | None) -> list[str]:
    """The files that belong to this file of clusters, itself among them."""
    files = {bootstrap.CLUSTERS: clusters} if clusters else {}
    apart = [one["name"] for one in _resources(files, bootstrap.CLUSTERS) if one["type"] == "EDS"]
    apart = [bootstrap.endpoints_file(name) for name in apart]
    return [bootstrap.RUNTIME, *apart, bootstrap.CLUSTERS, bootstrap.LISTENERS, bootstrap.OWNERS]


def version(file: bytes) -> str:
    """What Envoy calls a file's content once it has taken it."""
    return file[len(_HEAD) : len(_HEAD) + _DIGEST].decode()


def _file(found: Iterable[bytes]) -> bytes:
    body = b",".join(found)
    digest = hashlib.sha256(body).hexdigest()[:_DIGEST].encode()
    return b'%s%s","resources":[%s]}' % (_HEAD, digest, body)


def _resources(files: Mapping[str, bytes], name: str) -> list[Resource]:
    return list(orjson.loads(files[name]).get("resources", [])) if name in files else []


def _runtime(interval: int) -> bytes:
    layer = {"health_check": {"min_interval": interval}}
    return rendering.dumped({"@type": _RUNTIME, "name": bootstrap.LAYER, "layer": layer})


def _published(name: str) -> Published:
    protocol, address, port = name.split("_")
    return Published(address, int(port), "TCP" if protocol == "tcp" else "UDP")
