"""Gardener's machine-controller-manager of a Shoot, where MachineDeployments are its work."""

from __future__ import annotations

from windowbox.errors import WindowboxError
from windowbox.models.refs import DEPLOYMENTS
from workers.health import checks
from workers.health.checks import Errored, Result
from workers.owned.targets import TargetCluster

_NAME = "machine-controller-manager"


async def replicas(target: TargetCluster, namespace: str) -> int:
    """How many there are to be; 0 without a Deployment."""
    found = await target.live(DEPLOYMENTS, namespace, _NAME)
    wanted = found.spec.get("replicas", 1) if found else 0
    return wanted if isinstance(wanted, int) else 0


async def check(target: TargetCluster, namespace: str) -> Result:
    """Whether its Deployment is healthy. Deployments are not watched, so that the API is asked."""
    try:
        found = await target.live(DEPLOYMENTS, namespace, _NAME)
    except WindowboxError as error:
        return Errored(str(error))
    return checks.deployment(namespace, _NAME, found)


async def scale(target: TargetCluster, namespace: str, to: int) -> None:
    """Start or stop it, where there is one."""
    await target.merge(DEPLOYMENTS, namespace, _NAME, {"spec": {"replicas": to}}, part="scale")
