"""The Docker attachment that the settings ask for."""

from __future__ import annotations

from windowbox.clients.docker import Engine
from windowbox.clients.envoy.attachments import Attachment
from windowbox.clients.envoy.docker.boxes import Household
from windowbox.clients.envoy.docker.host import DockerHost
from windowbox.clients.envoy.docker.perservice import DockerPerService
from windowbox.clients.envoy.docker.routed import DockerRouted
from windowbox.models.lbsettings import LoadBalancerSettings


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
