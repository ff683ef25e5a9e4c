"""The attachment that the settings ask for."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from windowbox.errors import Malformed
from windowbox.settings.lbsettings import LoadBalancerSettings
from workers.loadbalancer.envoy.attachments import Attachment
from workers.loadbalancer.envoy.launched import Launched
from workers.loadbalancer.envoy.process import Processes
from workers.loadbalancer.links.addresses import Links

_FOLDER = "name a folder for Envoy's files and sockets; with Docker, one of Docker's host"


@contextlib.asynccontextmanager
async def opened(settings: LoadBalancerSettings, links: Links | None = None) -> AsyncIterator[Attachment]:
    """The attachment, for as long as it is needed; the Envoys run on without it."""
    if settings.folder is None:
        raise Malformed(f"loadbalancer.folder is not set: {_FOLDER}")
    if settings.attachment.startswith("docker-"):
        from workers.loadbalancer.envoy.docker import attaching  # 1 MB, which most edges do not need

        async with attaching.opened(settings) as attachment:
            yield attachment
    elif settings.attachment == "launcher":
        yield Launched(settings.folder, links=links)
    else:
        yield Processes(settings.folder, program=settings.envoy, links=links)
