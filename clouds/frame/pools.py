"""Pools of machines: their share of each zone, and the hash whose change replaces machines (ALL-Z2, Z4)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from math import ceil
from typing import Any, NamedTuple

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


class Inputs(NamedTuple):
    """What a cloud adds to the hash, in order, by the field of the pool that it comes from."""

    before: Mapping[str, str]
    """For pools without a node agent Secret."""
    now: Mapping[str, str]
    counts_config: bool = True
    """Whether the WorkerConfig as it is spelled counts for pools without a node agent Secret."""


def class_hash(pool: WorkerPool, site: Site, raw_config: str, added: Inputs) -> str:
    """The suffix of the names of a pool's MachineClasses. `raw_config` is the WorkerConfig as spelled."""
    return combined(hashed(pool, site, raw_config, added).values())[:5]


def hashed(pool: WorkerPool, site: Site, raw_config: str, added: Inputs) -> dict[str, str]:
    """What goes into the hash, in order, by the field of the pool, or of the Shoot, that it comes from."""
    if pool.node_agent_secret_name:
        return {"nodeAgentSecretName": pool.node_agent_secret_name, **added.now}
    config = {"providerConfig": raw_config} if raw_config and added.counts_config else {}
    return {**_of_machines(pool, site), **config, **added.before, **_of_cluster(pool, site)}


def _of_machines(pool: WorkerPool, site: Site) -> dict[str, str]:
    image, volume = pool.machine_image, pool.volume
    version = pool.kubernetes_version or mapping(mapping(site.shoot.get("spec")).get("kubernetes"))["version"]
    found = {
        "kubernetes.version": ".".join(map(str, constraints.version(str(version))[:2])),
        "machine.type": pool.machine_type,
        "machine.image": f"{image.name}{image.version}" if image else "",
    }
    if volume:
        found["volume.size"] = volume.size
        if volume.type is not None:
            found["volume.type"] = volume.type
    return found


def _of_cluster(pool: WorkerPool, site: Site) -> dict[str, str]:
    found = {}
    spec, status = mapping(site.shoot.get("spec")), mapping(site.shoot.get("status"))
    for one in mapping(spec.get("provider")).get("workers") or []:
        if mapping(one).get("name") == pool.name and (
            runtime := mapping(mapping(one).get("cri")).get("name")
        ):
            found["cri.name"] = str(runtime)
    rotation = mapping(mapping(status.get("credentials")).get("rotation"))
    for name in ("certificateAuthorities", "serviceAccountKey"):
        if moment := instant(mapping(rotation.get(name)).get("lastInitiationTime")):
            text = moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S +0000 UTC")
            found[f"status.credentials.rotation.{name}"] = text
    if mapping(mapping(spec.get("systemComponents")).get("nodeLocalDNS")).get("enabled"):
        found["spec.systemComponents.nodeLocalDNS.enabled"] = "node-local-dns"
    return found


def gigabytes(size: str) -> int:
    """`50Gi` → 50."""
    found = _SIZE.match(size)
    if found is None:
        raise Malformed(
            f"volume size {size!r:.50} does not begin with a number of gigabytes: write it as 50Gi"
        )
    return int(found[0])
