"""The access to the garden, which gardenlet injects. Gardener's tests see by an annotation that it works."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from datetime import UTC, datetime

from windowbox.clients.kubernetes import kube
from windowbox.errors import TransientError, WindowboxError
from windowbox.models.refs import SEEDS, SHOOTS, Resource
from windowbox.settings.clustersettings import GardenSettings
from windowbox.telemetry import metrics

logger = logging.getLogger(__name__)

ANNOTATION = "provider-local-e2e-test-garden-access"
_FIRST, _LONGEST = 5.0, 300.0
"""Seconds until the next attempt: after the first, and at most."""


async def proven(settings: GardenSettings) -> bool:
    """Read our Seed and our Shoot, whichever there are, and annotate them. False if the garden is away.

    Whoever has no access ends with the error, as the Go program does, before it is ready.
    SeedAuthorizer lets an extension get and patch its own Seed and Shoot: nothing else is asked for.
    """
    try:
        await _prove(settings)
    except TransientError as error:
        logger.warning("access to the garden: %s; again when ready", error)
        return False
    return True


async def prove_later(settings: GardenSettings) -> None:
    """Try until the access works. An error ends no process that is ready: it serves objects."""
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
    # SeedAuthorizer lets nobody read the namespace kube-system.
    async with kube.from_file(settings.kubeconfig, moves=False) as garden:
        for resource, namespace, name in _objects(settings):
            works = metrics.garden_access.labels(resource.kind)
            works.set(0)
            await _annotate(garden, resource, namespace, name)
            works.set(1)


def _objects(settings: GardenSettings) -> Iterator[tuple[Resource, str, str]]:
    if settings.seed:
        yield SEEDS, "", settings.seed
    if settings.shoot:
        yield SHOOTS, settings.shoot_namespace, settings.shoot


async def _annotate(garden: kube.Kube, resource: Resource, namespace: str, name: str) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    await garden.get(resource, namespace, name)
    await garden.merge(resource, namespace, name, {"metadata": {"annotations": {ANNOTATION: now}}})
    logger.info("access to the garden: %s %s is annotated", resource.kind, name)
