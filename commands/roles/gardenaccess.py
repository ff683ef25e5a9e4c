"""The access to the garden, which gardenlet injects. Gardener's tests check its annotation."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime

from windowbox.clients.kubernetes import kube
from windowbox.errors import TransientError, WindowboxError
from windowbox.models.refs import SEEDS, SHOOTS
from windowbox.settings.clustersettings import GardenSettings
from windowbox.telemetry import metrics

logger = logging.getLogger(__name__)

ANNOTATION = "provider-local-e2e-test-garden-access"
_FIRST, _LONGEST = 5.0, 300.0
"""Seconds between attempts: the first delay, and the longest."""


async def proven(settings: GardenSettings) -> bool:
    """Read and annotate the Seed and the Shoot that the settings name. False if the garden is unreachable.

    Without access, the process ends with the error before it is ready, as Gardener's provider-local does.
    """
    try:
        await _prove(settings)
    except TransientError as error:
        logger.warning("access to the garden: %s; again when ready", error)
        return False
    return True


async def prove_later(settings: GardenSettings) -> None:
    """Retry until the access works. A process that is ready goes on serving objects meanwhile."""
    pause = _FIRST
    while True:
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST)
        try:
            await _prove(settings)
        except WindowboxError as error:
            level = logging.WARNING if isinstance(error, TransientError) else logging.ERROR
            logger.log(level, "access to the garden: %s; again in %.0f s", error, pause)
        else:
            return


async def _prove(settings: GardenSettings) -> None:
    objects = []
    if settings.seed:
        objects.append((SEEDS, "", settings.seed))
    if settings.shoot:
        objects.append((SHOOTS, settings.shoot_namespace, settings.shoot))
    # SeedAuthorizer lets an extension get and patch its own Seed and Shoot, and read no kube-system.
    async with kube.from_file(settings.kubeconfig, moves=False) as garden:
        for resource, namespace, name in objects:
            works = metrics.garden_access.labels(resource.kind)
            works.set(0)
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            await garden.get(resource, namespace, name)
            await garden.merge(resource, namespace, name, {"metadata": {"annotations": {ANNOTATION: now}}})
            logger.info("access to the garden: %s %s is annotated", resource.kind, name)
            works.set(1)
