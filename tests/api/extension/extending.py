"""What a client does with Extensions, and what it finds."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable
from typing import Any

import brotli
import yaml

from bus import streams, subjects
from bus.messages import Announcement
from bus.transport.connection import connected
from tests.support.kindworld import Client, KindWorld
from tests.support.resourcemanager import ResourceManager
from windowbox.models.extensions import OPERATION
from windowbox.models.objects import Object
from windowbox.models.refs import (
    EXTENSIONS,
    MANAGED_RESOURCES,
    NAMESPACES,
    NETWORK_POLICIES,
    RUNTIME,
    SECRETS,
    ObjectRef,
)
from windowbox.settings.bussettings import Access

SEED, SHOOT, AFTER_WORKER = "local-ext-seed", "local-ext-shoot", "local-ext-shoot-after-worker"
TYPES = (SEED, SHOOT, AFTER_WORKER)
ALL_CLASSES = ("garden", "seed", "shoot")
FORCED = {"confirmation.gardener.cloud/force-deletion": "true"}
TESTED = {"test-force-delete": "true"}
"""Annotations of a Shoot: of one that has to go, and of one of a test."""


async def extend(shoot: Client, type_: str, **options: Any) -> None:
    class_ = {"class": options.pop("class_")} if "class_" in options else {}
    await shoot.create(EXTENSIONS, type_, {"type": type_, **class_}, **options)


def manager(shoot: Client) -> ResourceManager:
    return ResourceManager(shoot)


async def until_waiting(shoot: Client, type_: str, doing: str) -> Object:
    def waits(found: Object | None) -> bool:
        return found is not None and str(found.last_operation.get("description")).startswith(
            doing + ": waiting"
        )

    found = await shoot.until(EXTENSIONS, type_, waits)
    assert found
    assert found.last_operation["state"] == "Processing"
    assert "lastError" not in found.status
    return found


async def asked(shoot: Client, type_: str, operation: str = "reconcile") -> None:
    """Ask for it, and wait until it is done and told."""
    await shoot.ask(EXTENSIONS, type_, operation)
    await shoot.until_ready(EXTENSIONS, type_)
    # Within one second, what was reported before looks like an answer.
    await shoot.world.quiet()


async def secrets(shoot: Client) -> list[str]:
    page = await shoot.kube.page(SECRETS._replace(within=shoot.namespace))
    return sorted(name for name in (Object(raw).name for raw in page.items) if name.startswith("managed"))


async def policies(shoot: Client) -> list[Object]:
    selected = NETWORK_POLICIES._replace(
        within=shoot.namespace, selector="app.kubernetes.io/name=local-ext-shoot"
    )
    return [Object(raw) for raw in (await shoot.kube.page(selected)).items]


async def unpacked(shoot: Client, name: str) -> list[dict[str, Any]]:
    secret = await shoot.kube.get(SECRETS, shoot.namespace, name)
    assert list(secret.raw["data"]) == ["data.yaml.br"]
    text = brotli.decompress(base64.b64decode(secret.raw["data"]["data.yaml.br"]))
    return list(yaml.safe_load_all(text))


def healthy(found: Object | None) -> bool:
    conditions = found.status.get("conditions", []) if found else []
    return {"True"} == {one["status"] for one in conditions if one["type"] == "ResourcesHealthy"}


def migrated(found: Object | None) -> bool:
    said = found.last_operation if found and OPERATION not in found.annotations else {}
    return (said.get("type"), said.get("state")) == ("Migrate", "Succeeded")


async def empty(world: KindWorld, name: str) -> Client:
    with contextlib.suppress(Exception):
        await world.kube.create(NAMESPACES, "", {"metadata": {"name": name}})
    return world.client(name)


async def known(
    world: KindWorld, namespace: str, name: str, holds: Callable[[Object], bool] = lambda _: True
) -> bool:
    """Whether the bus has heard of a ManagedResource of which this holds."""
    ref = ObjectRef(RUNTIME, MANAGED_RESOURCES.id, namespace, name)
    async with connected(Access(world.nats.url, name="test")) as bus:
        stored = await bus.last(streams.OBJECTS, subjects.seen(ref))
    seen = Announcement(stored) if stored else None
    return seen is not None and not seen.gone and holds(seen.object())
