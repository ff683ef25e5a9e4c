"""The hashes by which machines of a pool are told to be replaced, or updated in place."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from windowbox.errors import Malformed
from windowbox.models.extensions import instant
from windowbox.models.gardener.worker import EvictionThresholds, KubeletConfig, KubeReserved, WorkerPool
from windowbox.models.objects import mapping

IN_PLACE = ("AutoInPlaceUpdate", "ManualInPlaceUpdate")
_VERSION = re.compile(r"v?(\d+)\.(\d+)(\.\d+)?([-+][0-9A-Za-z.+-]+)?")


def combined(parts: Iterable[str]) -> str:
    """The hash of several texts, in their order."""
    return _sha256("".join(map(_sha256, parts)))


def class_hash(pool: WorkerPool, in_place: str = "") -> str:
    """What the names of a pool's MachineClasses end in; `in_place` is the hash of a pool of that kind."""
    if not pool.node_agent_secret_name:
        raise Malformed(
            f'missing node-agent secret name for worker pool "{pool.name}": '
            f"set nodeAgentSecretName of pool {pool.name!r} in spec.pools"
        )
    return combined([pool.node_agent_secret_name, *([in_place] if in_place else [])])[:5]


def in_place_hash(pool: WorkerPool, shoot: Mapping[str, Any]) -> str:
    """What changes when the nodes of a pool have to be updated in place. `shoot` is that of the Cluster."""
    rotation = mapping(mapping(mapping(shoot.get("status")).get("credentials")).get("rotation"))
    times = (_rotated(rotation.get(of), pool.name) for of in ("certificateAuthorities", "serviceAccountKey"))
    image = pool.machine_image.version if pool.machine_image else ""
    parts = [_major_minor(pool, shoot), image, *filter(None, times), *kubelet_parts(pool.kubelet_config)]
    return combined(parts)[:16]


def kubelet_parts(config: KubeletConfig | None) -> list[str]:
    """What of a kubelet's configuration asks for an update."""
    if config is None:
        return []
    parts = []
    if config.kube_reserved is not None:
        parts.append(_reserved(config.kube_reserved))
    if config.eviction_hard is not None:
        parts.append(_thresholds(config.eviction_hard))
    if config.cpu_manager_policy is not None:
        parts.append(config.cpu_manager_policy)
    return parts


def _reserved(reserved: KubeReserved) -> str:
    values = (reserved.cpu, reserved.memory, reserved.pid, reserved.ephemeral_storage)
    return "-".join("<nil>" if value is None else str(value) for value in values)


def _thresholds(hard: EvictionThresholds) -> str:
    values = (
        hard.image_fs_available,
        hard.image_fs_inodes_free,
        hard.memory_available,
        hard.node_fs_available,
        hard.node_fs_inodes_free,
    )
    return "-".join(value or "" for value in values)


def _rotated(rotation: object, pool: str) -> str:
    """When a credential was rotated last, as Go spells it. A pending roll-out of the pool comes first."""
    found = mapping(rotation)
    at = found.get("lastInitiationTime")
    pending = found.get("pendingWorkersRollouts")
    for rollout in pending if isinstance(pending, list) else ():
        if mapping(rollout).get("name") == pool:
            at = mapping(rollout).get("lastInitiationTime")
            break
    moment = instant(at)
    return _as_go_spells(moment) if moment else ""


def _as_go_spells(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S +0000 UTC")


def _major_minor(pool: WorkerPool, shoot: Mapping[str, Any]) -> str:
    """Without a version of its own, a pool has that of the Shoot."""
    of_shoot = mapping(mapping(shoot.get("spec")).get("kubernetes")).get("version")
    version = pool.kubernetes_version or str(of_shoot or "")
    found = _VERSION.fullmatch(version)
    if not found:
        raise Malformed(
            f"failed to parse kubernetes version {version!r:.80} of worker pool {pool.name!r}: "
            "set kubernetesVersion of the pool in spec.pools to a version such as 1.35.4"
        )
    return f"{int(found[1])}.{int(found[2])}"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
