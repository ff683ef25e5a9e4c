"""Pools of machines: their share of each zone, and the hash whose change replaces machines (ALL-Z2, Z4)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import ceil
from typing import Any, NamedTuple

from windowbox.errors import Malformed
from windowbox.models import constraints
from windowbox.models.extensions import instant
from windowbox.models.gardener.worker import KubeletConfig, WorkerPool
from windowbox.models.objects import mapping

IN_PLACE = ("AutoInPlaceUpdate", "ManualInPlaceUpdate")
_SIZE = re.compile(r"\d{1,9}(?!\d)", re.ASCII)
_VERSION = re.compile(r"v?(\d+)\.(\d+)(\.\d+)?([-+][0-9A-Za-z.+-]+)?")


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
    credentials: Mapping[str, str] = field(default_factory=dict)
    """What classes and ids may contain of the cloud's Secret, such as a project."""


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
    class_labels: Mapping[str, str] = field(default_factory=dict)
    in_place_hash: str = ""
    """Of a pool that is updated in place."""
    shares_limits: bool = True
    """Whether groups share surge and unavailable; otherwise each has those of the pool."""

    @property
    def in_place(self) -> bool:
        return self.pool.update_strategy in IN_PLACE

    @property
    def manual(self) -> bool:
        """Whether a person chooses the nodes that are updated in place."""
        return self.pool.update_strategy == "ManualInPlaceUpdate"

    @property
    def preserved(self) -> int:
        """The most failed machines that are preserved automatically."""
        settings = self.pool.machine_controller_manager
        most = settings.auto_preserve_failed_machine_max if settings else None
        return share(self.index, most or 0, self.zones)

    @property
    def minimum(self) -> int:
        return share(self.index, self.pool.minimum, self.zones)

    @property
    def maximum(self) -> int:
        return share(self.index, self.pool.maximum, self.zones)

    @property
    def max_surge(self) -> int | str:
        whole = self.pool.max_surge
        return share_of(self.index, whole, self.zones, self.pool.maximum) if self.shares_limits else whole

    @property
    def max_unavailable(self) -> int | str:
        whole = self.pool.max_unavailable
        return share_of(self.index, whole, self.zones, self.pool.minimum) if self.shares_limits else whole


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
    parts = list(hashed(pool, site, raw_config, added).values())
    if pool.update_strategy in IN_PLACE:
        parts.append(in_place_hash(pool, site.shoot))
    return combined(parts)[:5]


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
            found[f"status.credentials.rotation.{name}"] = _as_go_prints(moment)
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


def in_place_hash(pool: WorkerPool, shoot: Mapping[str, Any]) -> str:
    """The hash of everything that in-place updates bring to nodes. `shoot` is that of the Cluster."""
    of_shoot = mapping(mapping(shoot.get("spec")).get("kubernetes")).get("version")
    version = pool.kubernetes_version or str(of_shoot or "")
    found = _VERSION.fullmatch(version)
    if not found:
        raise Malformed(
            f"failed to parse kubernetes version {version!r:.80} of worker pool {pool.name!r}: "
            "set kubernetesVersion of the pool in spec.pools to a version such as 1.35.4"
        )
    parts = [f"{int(found[1])}.{int(found[2])}", pool.machine_image.version if pool.machine_image else ""]
    rotations = mapping(mapping(mapping(shoot.get("status")).get("credentials")).get("rotation"))
    for credential in ("certificateAuthorities", "serviceAccountKey"):
        rotation = mapping(rotations.get(credential))
        at = rotation.get("lastInitiationTime")
        # A roll-out that is pending for this pool has a time of its own, which comes first.
        pending = rotation.get("pendingWorkersRollouts")
        for rollout in pending if isinstance(pending, list) else ():
            if mapping(rollout).get("name") == pool.name:
                at = mapping(rollout).get("lastInitiationTime")
                break
        if moment := instant(at):
            parts.append(_as_go_prints(moment))
    return combined([*parts, *kubelet_parts(pool.kubelet_config)])[:16]


def kubelet_parts(config: KubeletConfig | None) -> list[str]:
    """The kubelet settings whose change needs an update, spelled as Gardener spells them."""
    if config is None:
        return []
    parts = []
    if (reserved := config.kube_reserved) is not None:
        values = (reserved.cpu, reserved.memory, reserved.pid, reserved.ephemeral_storage)
        parts.append("-".join("<nil>" if value is None else str(value) for value in values))
    if (hard := config.eviction_hard) is not None:
        thresholds = (
            hard.image_fs_available,
            hard.image_fs_inodes_free,
            hard.memory_available,
            hard.node_fs_available,
            hard.node_fs_inodes_free,
        )
        parts.append("-".join(value or "" for value in thresholds))
    if config.cpu_manager_policy is not None:
        parts.append(config.cpu_manager_policy)
    return parts


def _as_go_prints(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S +0000 UTC")
