"""The Docker attachment that the settings ask for."""

from __future__ import annotations

from windowbox.clients.docker import Engine
from windowbox.settings.lbsettings import LoadBalancerSettings
from workers.loadbalancer.envoy.attachments import Attachment
from workers.loadbalancer.envoy.docker.boxes import Household
from workers.loadbalancer.envoy.docker.host import DockerHost
from workers.loadbalancer.envoy.docker.perservice import DockerPerService
from workers.loadbalancer.envoy.docker.routed import DockerRouted


def chosen(engine: Engine, settings: LoadBalancerSettings) -> Attachment:
    """How Envoys are attached on this engine."""
    household = Household(settings.image, settings.cluster_name)
    folder = settings.folder.absolute() if settings.folder else None
    match settings.attachment:
        case "docker-host":
            return DockerHost(engine, household, folder)
        case "docker-routed":
            prefixes = [prefix for one in settings.ranges for prefix in one.prefixes]
            return DockerRouted(engine, household, settings.network, prefixes, folder)
        case "docker-per-service":
            return DockerPerService(engine, household, settings.network, folder)
        case "process" | "launcher":
            raise ValueError("a process needs no Docker")
