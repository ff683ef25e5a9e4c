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
"""What the cluster is called in which the machines of the one we serve are."""
_AGAIN = 1.0


@dataclass(frozen=True)
class CcmConfig:
    """The settings, and where the machines of the runtime cluster are, should they be Pods of another."""

    settings: LoadBalancerSettings
    infrastructure: Member | None = None
    machines: MachinePlace | None = None


def applied(settings: LoadBalancerSettings) -> CcmConfig:
    """The settings, with what the file says that `cloud_config` names."""
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
    """Let a cluster take part that the settings name."""
    await registry.complete.wait()
    while registry.members.get(member.id) != member:
        try:
            await registry.join(member)
            return
        except WindowboxError as error:
            logger.info("cluster %s cannot join yet: %s", member.id, error)
            await asyncio.sleep(_AGAIN)
