"""The attachment to a Docker engine that the settings ask for."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from windowbox.clients import docker
from windowbox.clients.docker import Engine
from windowbox.errors import Malformed
from windowbox.settings.lbsettings import LoadBalancerSettings
from workers.loadbalancer.envoy.attachments import Attachment
from workers.loadbalancer.envoy.docker.boxes import Household
from workers.loadbalancer.envoy.docker.dockerenvoys import DockerHost
from workers.loadbalancer.envoy.docker.perservice import DockerPerService
from workers.loadbalancer.envoy.docker.routed import DockerRouted


@contextlib.asynccontextmanager
async def opened(settings: LoadBalancerSettings) -> AsyncIterator[Attachment]:
    """The attachment, with a connection to the engine."""
    async with docker.opened(settings.docker) as engine:
        yield on_docker(engine, settings)


def on_docker(engine: Engine, settings: LoadBalancerSettings) -> Attachment:
    """The attachment to this Docker engine."""
    household = Household(settings.image, settings.cluster_name)
    if settings.folder is None:
        raise Malformed("loadbalancer.folder is not set: name a folder of Docker's host")
    folder = settings.folder.absolute()
    match settings.attachment:
        case "docker-host":
            return DockerHost(engine, household, settings.network, folder)
        case "docker-routed":
            prefixes = [prefix for one in settings.ranges for prefix in one.prefixes]
            return DockerRouted(engine, household, settings.network, folder, prefixes)
        case "docker-per-service":
            return DockerPerService(engine, household, settings.network, folder)
        case "process" | "launcher":
            raise ValueError("a process needs no Docker")
