"""Waits for CustomResourceDefinitions that a cluster does not have yet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import WindowboxError
from windowbox.models.objects import Object
from windowbox.models.refs import Resource

logger = logging.getLogger(__name__)

_CRDS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)


async def established(kube: Kube, cluster: str, resource: Resource) -> None:
    """Wait until the kind may exist."""
    logger.warning("%s: no kind %s yet; waiting for its CustomResourceDefinition", cluster, resource.id)
    try:
        async for events in kube.watch(_CRDS, "0", only=resource.id):
            if any(e.type in ("ADDED", "MODIFIED") and _serves(Object(e.object), resource) for e in events):
                return
    except WindowboxError as error:
        logger.info("%s %s: %s", cluster, resource.id, error)
        await asyncio.sleep(1)


def _serves(definition: Object, resource: Resource) -> bool:
    """Whether the definition has been accepted, in the version that we read."""
    conditions, versions = _parts(definition.status, "conditions"), _parts(definition.spec, "versions")
    established = any(c.get("type") == "Established" and c.get("status") == "True" for c in conditions)
    return established and any(v.get("name") == resource.version and v.get("served") for v in versions)


def _parts(of: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    found = of.get(name)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []
