"""Which attachment the settings ask for."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from windowbox.clients import docker
from windowbox.clients.envoy.attachments import Attachment
from windowbox.clients.envoy.docker import choice
from windowbox.clients.envoy.launched import Launched
from windowbox.clients.envoy.process import Processes
from windowbox.errors import Malformed
from windowbox.models.lbsettings import LoadBalancerSettings


@contextlib.asynccontextmanager
async def opened(settings: LoadBalancerSettings) -> AsyncIterator[Attachment]:
    """The attachment, for as long as it is needed; the Envoys go on without it."""
    if settings.attachment.startswith("docker-"):
        async with docker.opened(settings.docker) as engine:
            yield choice.chosen(engine, settings)
    elif settings.folder is None:
        raise Malformed("loadbalancer.folder is not set: name a folder for Envoy's files")
    elif settings.attachment == "launcher":
        yield Launched(settings.folder)
    else:
        yield Processes(settings.folder, program=settings.envoy)
