"""Pools of machines: their share of each zone, and the hash whose change replaces machines (ALL-Z2, Z4)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from math import ceil
from typing import Any

from windowbox.errors import Malformed
from windowbox.models import constraints
from windowbox.models.extensions import instant
from windowbox.models.gardener.worker import WorkerPool
from windowbox.models.objects import mapping

_SIZE = re.compile(r"\d{1,9}(?!\d)", re.ASCII)


@dataclass(frozen=True)
class Site:
    """The facts that all pools of a Worker share."""

    namespace: str
    """The technical id of the Shoot."""
    region: str
    infrastructure: Mapping[str, Any]
    """`status.providerStatus` of the Infrastructure."""
    shoot: Mapping[str, Any]
    profile: Mapping[str, Any]
    """The CloudProfile."""
    used_images: Sequence[Mapping[str, Any]] = ()
    """The images in `status.providerStatus` of the Worker."""
    dependencies: Sequence[Mapping[str, Any]] = ()
    """What that status lists of things that a pool as a whole has, such as a server group."""
    ssh_public_key: str = ""
    project: str = ""
    """`projectID` of the cloud's Secret, where that has one."""


@dataclass(frozen=True)
class Group:
    """The machines of one zone of a pool, or of all of them."""

    pool: WorkerPool
    name: str
    """Of its MachineDeployment."""
    class_name: str
    zone: str
    """Empty if the machines may be in any, or there are none."""
    index: int
    zones: int
    """How many groups share the pool's machines."""
    provider_spec: Mapping[str, Any]
    labels: Mapping[str, str]
    """Of its nodes, besides those of the pool."""
    node_template: Mapping[str, Any] | None = None
    """Of its MachineClass: what the autoscaler expects of a machine."""

    @property
    def minimum(self) -> int:
        return share(self.index, self.pool.minimum, self.zones)

    @property
    def maximum(self) -> int:
        return share(self.index, self.pool.maximum, self.zones)

    @property
    def max_surge(self) -> int | str:
        return share_of(self.index, self.pool.max_surge, self.zones, self.pool.maximum)

    @property
    def max_unavailable(self) -> int | str:
        return share_of(self.index, self.pool.max_unavailable, self.zones, self.pool.minimum)


def share(zone: int, size: int, zones: int) -> int:
    """The part of `size` for the zone with this index. The first zones get the remainder."""
    return size // zones + (1 if zone < size % zones else 0)


def share_of(zone: int, given: int | str, zones: int, total: int) -> int | str:
    """The same for a number; a percentage becomes larger in the zones that got the remainder of `total`."""
    if isinstance(given, int):
        return share(zone, given, zones)
    percent = int(given.removesuffix("%"))
    if total % zones:
        # In the order of the original: it rounds floating point numbers up.
        ratio = 100.0 / (float(total) / float(zones)) * float(share(zone, total, zones))
        percent = ceil(ratio * float(percent) / 100.0)
    return f"{percent}%"


def combined(parts: Iterable[str]) -> str:
    """The hash of several texts, in their order."""
    digests = (hashlib.sha256(part.encode()).hexdigest() for part in parts)
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def class_hash(
    pool: WorkerPool, site: Site, raw_config: str, before: Iterable[str], now: Iterable[str]
) -> str:
    """The suffix of the names of a pool's MachineClasses.

    `before` and `now` are what the cloud adds to the hash without and with a node agent Secret. `raw_config`
    is the WorkerConfig as the object spells it.
    """
    return combined(hashed(pool, site, raw_config, before, now).values())[:5]


def hashed(
    pool: WorkerPool, site: Site, raw_config: str, before: Iterable[str], now: Iterable[str]
) -> dict[str, str]:
    """What goes into the hash, by name and in order."""
    if pool.node_agent_secret_name:
        # gardenlet hashes version, machine type, image and container runtime into the name of that Secret.
        return {"node agent Secret": pool.node_agent_secret_name, **_numbered(now)}
    image, volume = pool.machine_image, pool.volume
    parts = {
        "Kubernetes version": ".".join(map(str, constraints.version(_kubernetes(pool, site))[:2])),
        "machine type": pool.machine_type,
        "machine image": f"{image.name}{image.version}" if image else "",
    }
    if volume:
        parts["volume size"] = volume.size
        if volume.type is not None:
            parts["volume type"] = volume.type
    if raw_config:
        parts["providerConfig"] = raw_config
    parts |= _numbered(before)
    spec, status = mapping(site.shoot.get("spec")), mapping(site.shoot.get("status"))
    for one in mapping(spec.get("provider")).get("workers") or []:
        if mapping(one).get("name") == pool.name and (
            runtime := mapping(mapping(one).get("cri")).get("name")
        ):
            parts["container runtime"] = str(runtime)
    rotation = mapping(mapping(status.get("credentials")).get("rotation"))
    for name in ("certificateAuthorities", "serviceAccountKey"):
        if moment := instant(mapping(rotation.get(name)).get("lastInitiationTime")):
            parts[f"rotation of {name}"] = moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S +0000 UTC")
    if mapping(mapping(spec.get("systemComponents")).get("nodeLocalDNS")).get("enabled"):
        parts["node-local DNS"] = "node-local-dns"
    return parts


def _numbered(texts: Iterable[str]) -> dict[str, str]:
    return {f"provider data {i}": text for i, text in enumerate(texts, 1)}


def _kubernetes(pool: WorkerPool, site: Site) -> str:
    of_shoot = mapping(mapping(site.shoot.get("spec")).get("kubernetes")).get("version")
    return pool.kubernetes_version or str(of_shoot or "")


def gigabytes(size: str) -> int:
    """`50Gi` → 50."""
    found = _SIZE.match(size)
    if found is None:
        raise Malformed(
            f"volume size {size!r:.50} does not begin with a number of gigabytes: write it as 50Gi"
        )
    return int(found[0])
