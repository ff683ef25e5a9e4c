"""`windowbox watch`: mirrors clusters to the bus."""

from __future__ import annotations

import asyncio
import logging

from bus import streams
from commands.roles.roleprocess import Process
from watchers.watching import Watching
from windowbox import versions
from windowbox.errors import WindowboxError
from windowbox.telemetry import metrics

logger = logging.getLogger(__name__)

_STREAMS_RETRY = 1.0
_VERSIONS_INTERVAL = 3600.0
"""Seconds. No event says that an API server was upgraded while this process runs."""


async def watch(made: Process) -> None:
    """Mirror clusters to the bus. Watchers also keep the streams: as publishers, they notice a loss first."""
    settings = made.settings

    async def ensure_streams() -> None:
        await streams.ensure(made.bus, settings.nats.replicas, settings.objects.retention)

    async def keep_streams() -> None:
        """Recreate the streams after every reconnect: the server may have lost its store."""
        back = asyncio.Event()
        with made.bus.on_reconnect(back.set):
            while True:
                await back.wait()
                back.clear()
                try:
                    await ensure_streams()
                except WindowboxError as error:
                    logger.warning("streams: %s; again in %.0f s", error, _STREAMS_RETRY)
                    await asyncio.sleep(_STREAMS_RETRY)
                    back.set()

    await ensure_streams()
    watching = Watching(
        made.bus, made.leases, await made.clusters(), made.registry, settings.watch.kinds,
        settings.watch.page, settings.objects.retention, settings.objects.share,
    )  # fmt: skip
    made.details["watches"] = lambda: dict(watching.states)
    made.tasks |= {
        "watch": watching.run,
        "streams": keep_streams,
        "versions": lambda: _check_versions(made),
    }


async def _check_versions(made: Process) -> None:
    """Report versions of Kubernetes and Gardener that windowbox is not known to work with."""
    kube = (await made.clusters()).runtime
    while True:
        try:
            found = {"Kubernetes": await kube.version()}
            if gardener := made.settings.garden.version:
                found["Gardener"] = gardener
        except WindowboxError as error:
            logger.warning("versions: %s", error)
        else:
            metrics.version_supported.clear()
            for component, version in found.items():
                if why := versions.problem(component, version):
                    logger.warning("%s", why)
                metrics.version_supported.labels(component, version).set(not why)
        await asyncio.sleep(_VERSIONS_INTERVAL)
