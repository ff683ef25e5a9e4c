"""Hashes of a pool: a changed hash replaces its machines, or updates them in place. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from datetime import UTC
from typing import Any

from windowbox.errors import Malformed
from windowbox.models.extensions import instant
from windowbox.models.gardener.worker import KubeletConfig, WorkerPool
from windowbox.models.objects import mapping

IN_PLACE = ("AutoInPlaceUpdate", "ManualInPlaceUpdate")
_VERSION = re.compile(r"v?(\d+)\.(\d+)(\.\d+)?([-+][0-9A-Za-z.+-]+)?")


def combined(parts: Iterable[str]) -> str:
    """The hash of several texts, in their order."""
    digests = (hashlib.sha256(part.encode()).hexdigest() for part in parts)
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def class_hash(pool: WorkerPool, in_place: str = "") -> str:
    """The suffix of the names of a pool's MachineClasses; `in_place` is its hash for in-place updates."""
    if not pool.node_agent_secret_name:
        raise Malformed(
            f'missing node-agent secret name for worker pool "{pool.name}": '
            f"set nodeAgentSecretName of pool {pool.name!r} in spec.pools"
        )
    # gardenlet hashes version, machine type, image and container runtime into the name of that Secret.
    return combined([pool.node_agent_secret_name, *([in_place] if in_place else [])])[:5]


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
        if moment := instant(at):  # as Go prints a time
            parts.append(moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S +0000 UTC"))
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
