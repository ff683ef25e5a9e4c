"""Gardener's machine-controller-manager of a Shoot, where MachineDeployments are its work."""

from __future__ import annotations

from windowbox.models.refs import DEPLOYMENTS, MACHINE_CONTROLLER_MANAGER, PLANE_DEPLOYMENTS
from workers.core.health import checks
from workers.core.health.checks import Result
from workers.core.owned.targets import TargetCluster

_NAME = MACHINE_CONTROLLER_MANAGER


async def replicas(target: TargetCluster, namespace: str) -> int:
    """How many there are to be; 0 without a Deployment."""
    found = await target.live(DEPLOYMENTS, namespace, _NAME)
    wanted = found.spec.get("replicas", 1) if found else 0
    return wanted if isinstance(wanted, int) else 0


async def check(target: TargetCluster, namespace: str) -> Result:
    """Whether its Deployment is healthy. An event tells when that changes."""
    found = await target.cached(PLANE_DEPLOYMENTS, namespace, _NAME)
    if found is None:  # perhaps those of control planes are not mirrored yet
        found = await target.live(DEPLOYMENTS, namespace, _NAME)
    return checks.deployment(namespace, _NAME, found)


async def scale(target: TargetCluster, namespace: str, to: int) -> None:
    """Start or stop it, where there is one."""
    await target.merge(DEPLOYMENTS, namespace, _NAME, {"spec": {"replicas": to}}, part="scale")
