"""The configuration file of cloud-controller-manager-local, for installations that replace it."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from bus.clusters.registry import MachinePlace, Member, Registry
from windowbox.errors import WindowboxError
from windowbox.models.gardener import cloudconfig
from windowbox.models.refs import PODS
from windowbox.settings.lbsettings import LoadBalancerSettings

logger = logging.getLogger(__name__)

_INFRASTRUCTURE = "infrastructure"
"""The id of the cluster whose Pods are the machines of the cluster that we serve."""
_RETRY = 1.0


@dataclass(frozen=True)
class CcmConfig:
    """The settings, and the place of the runtime cluster's machines if they are Pods of another cluster."""

    settings: LoadBalancerSettings
    infrastructure: Member | None = None
    machines: MachinePlace | None = None


def applied(settings: LoadBalancerSettings) -> CcmConfig:
    """The settings, overlaid with the file that `cloud_config` names."""
    if settings.cloud_config is None:
        return CcmConfig(settings)
    config = cloudconfig.load(settings.cloud_config)
    if config.load_balancer.image:
        settings = settings.model_copy(update={"image": config.load_balancer.image})
    if config.runtime_cluster is None:
        return CcmConfig(settings)
    namespace = config.runtime_cluster.namespace
    infrastructure = Member(
        id=_INFRASTRUCTURE,
        file=config.runtime_cluster.kubeconfig,
        kinds=(PODS.id,),
        namespace=namespace,
        origin="settings",
    )
    return CcmConfig(settings, infrastructure, MachinePlace(cluster=_INFRASTRUCTURE, namespace=namespace))


async def join(registry: Registry, member: Member) -> None:
    """Add the cluster that the settings name as a member, once the registry is known."""
    await registry.complete.wait()
    while registry.members.get(member.id) != member:
        try:
            await registry.join(member)
            return
        except WindowboxError as error:
            logger.info("cluster %s cannot join yet: %s", member.id, error)
            await asyncio.sleep(_RETRY)
