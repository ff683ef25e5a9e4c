"""The access to the garden, which gardenlet injects. Gardener's tests see by an annotation that it works."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from datetime import UTC, datetime

from windowbox.clients import kube
from windowbox.errors import TransientError
from windowbox.models.gardensettings import GardenSettings
from windowbox.models.refs import SEEDS, SHOOTS, Resource

logger = logging.getLogger(__name__)

ANNOTATION = "provider-local-e2e-test-garden-access"
_AGAIN = 5.0
"""Seconds."""


async def prove(settings: GardenSettings) -> None:
    """Read our Seed and our Shoot, whichever there are, and annotate them once. Then wait for ever.

    Whoever has no access ends with the error, as the Go program does; a garden that is away is waited for.
    SeedAuthorizer lets an extension get and patch its own Seed and Shoot: nothing else is asked for.
    """
    async with kube.from_file(settings.kubeconfig) as garden:
        for resource, namespace, name in _objects(settings):
            await _annotate(garden, resource, namespace, name)
        await asyncio.Event().wait()


def _objects(settings: GardenSettings) -> Iterator[tuple[Resource, str, str]]:
    if settings.seed:
        yield SEEDS, "", settings.seed
    if settings.shoot:
        yield SHOOTS, settings.shoot_namespace, settings.shoot


async def _annotate(garden: kube.Kube, resource: Resource, namespace: str, name: str) -> None:
    while True:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        try:
            await garden.get(resource, namespace, name)
            await garden.merge(resource, namespace, name, {"metadata": {"annotations": {ANNOTATION: now}}})
        except TransientError as error:
            pause = error.retry_after or _AGAIN
            logger.warning("%s; again in %.0f s", error, pause)
            await asyncio.sleep(pause)
        else:
            logger.info("access to the garden: %s %s is annotated", resource.kind, name)
            return
