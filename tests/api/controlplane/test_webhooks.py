"""The configurations of webhooks that a Shoot gets with its ControlPlane."""

from __future__ import annotations

import base64
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from tests.api.controlplane import controlplanes
from tests.api.controlplane.controlplanes import KUBERNETES, PROFILE
from tests.support.kindworld import KindWorld, kind_world
from tests.support.natsserver import NatsServer
from tests.support.resourcemanager import ResourceManager, unpacked
from tests.support.rules import rule
from tests.support.servers import ControlPlane
from windowbox.models.objects import Object
from windowbox.models.refs import CONTROL_PLANES, MANAGED_RESOURCES, NAMESPACES, SECRETS
from windowbox.settings.kindsettings import ControlPlaneSettings, HealthSettings, KindSettings
from windowbox.settings.webhooksettings import WebhookSettings

WEBHOOKS = "extension-controlplane-shoot-webhooks"
NAMESPACE = f"windowbox-{uuid.uuid4().hex[:6]}"


@pytest_asyncio.fixture
async def world(plane: ControlPlane, nats: NatsServer) -> AsyncIterator[KindWorld]:
    kinds = KindSettings(
        controlplane=ControlPlaneSettings(webhooks=True),
        health=HealthSettings(conditions="long"),
        # Where nobody is: failing calls are of no consequence there.
        webhooks=WebhookSettings(namespace=NAMESPACE, mode="url", url="127.0.0.1:1", disabled=("*",)),
    )
    async with kind_world(plane, nats, "controlplane", kinds=kinds) as made:
        yield made


async def _publish(world: KindWorld, bundle: bytes) -> None:
    """As `windowbox admit` keeps the certificates of its authorities."""
    labels = {
        "name": "ca-provider-local-webhook-bundle",
        "managed-by": "secrets-manager",
        "manager-identity": "gardener-extension-provider-local-webhook",
    }
    data = {"bundle.crt": base64.b64encode(bundle).decode()}
    name = f"ca-provider-local-webhook-bundle-{uuid.uuid4().hex[:8]}"
    await world.kube.create(SECRETS, NAMESPACE, {"metadata": {"name": name, "labels": labels}, "data": data})


@rule("Y-2", "M-2", "M-6", "B.23", "HC-3", "HC-11", "WF-30", "WF-31", "WF-33")
async def test_webhooks_come_before_everything_else_and_are_waited_for(world: KindWorld) -> None:
    await world.kube.create(NAMESPACES, "", {"metadata": {"name": NAMESPACE}})
    shoot = await controlplanes.shoot_of(world)
    await controlplanes.controlplane(shoot)
    failed = await shoot.until_failed(CONTROL_PLANES, "local")
    assert "run `windowbox admit`" in failed.status["lastError"]["description"]
    await _publish(world, b"an authority")
    waiting = await shoot.until(CONTROL_PLANES, "local", _waits)
    assert waiting
    found = await controlplanes.bundles(shoot)
    assert found.keys() == {WEBHOOKS}
    (secret,) = (ref["name"] for ref in found[WEBHOOKS].spec["secretRefs"])
    assert found[WEBHOOKS].spec == {"secretRefs": [{"name": secret}]}
    assert secret.startswith(f"{WEBHOOKS}-")
    assert await unpacked(shoot, secret) == []  # all are disabled here
    async with ResourceManager(shoot).at_work() as at_work:
        assert _condition(await controlplanes.until_ready(shoot)) == "All health checks successful"
        assert len(await controlplanes.bundles(shoot)) == 4
        await at_work.behave(slow=True)
        # A Shoot that sleeps does not wait for webhooks.
        await shoot.cluster(spec=KUBERNETES | {"hibernation": {"enabled": True}}, cloudProfile=PROFILE)
        unseen = {"status": {"observedGeneration": 0}}
        await shoot.merge(MANAGED_RESOURCES, WEBHOOKS, unseen, part="status")
        assert _condition(await controlplanes.asked(shoot)) == "Shoot is hibernated"
        await at_work.behave()
        await shoot.delete(CONTROL_PLANES, "local")
        await shoot.until_gone(CONTROL_PLANES, "local")
        assert await shoot.get(MANAGED_RESOURCES, WEBHOOKS) is None


def _condition(found: Object) -> str:
    """The message of the condition of the webhooks."""
    (condition,) = found.status["conditions"]
    assert (condition["type"], condition["status"]) == ("SystemComponentsHealthy", "True")
    return str(condition["message"])


def _waits(found: Any) -> bool:
    said = str(found.last_operation.get("description"))
    return f"waiting for ManagedResource {found.namespace}/{WEBHOOKS} to be healthy" in said
