"""The process of the role `ui`."""

from __future__ import annotations

import logging

from commands.roles.roleprocess import Process
from ui.mirror import Mirror
from ui.server import Server
from ui.view import Source
from windowbox.clients.kubernetes.kube import Kube

logger = logging.getLogger(__name__)


async def serve(made: Process) -> None:
    """Follow the bus, and serve the page."""

    async def kube() -> Kube:
        return (await made.clusters()).runtime

    server = Server(made.settings.ui, kube)
    mirror = Mirror(made.bus, server.hub.changed)
    server.hub.source = Source(mirror, made.settings.ui.monitor, made.settings.loadbalancer)
    made.tasks |= mirror.tasks
    address = await made.closing.enter_async_context(server.listening())
    made.details["page"] = lambda: {"address": address, "viewers": server.hub.viewers}
    logger.info("the page is at http://%s/", address)
