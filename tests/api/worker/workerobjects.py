"""Workers as gardenlet creates them, for tests with an API server."""

from __future__ import annotations

from typing import Any

from tests.api.bastion.bastions import cloud_profile
from tests.support.kindworld import CLOUDPROVIDER, Client, KindWorld
from windowbox.models.objects import Object
from windowbox.models.refs import WORKERS, Resource

NAME = "demo"
IMAGE = "registry.local/node:v1.0.0"
SCRIPT = b"#!/bin/bash\necho <<MACHINE_NAME>>\n"


def spec(shoot: Client, *pools: dict[str, Any]) -> dict[str, Any]:
    secret = {"name": CLOUDPROVIDER, "namespace": shoot.namespace}
    return {"region": "local", "secretRef": secret, "pools": list(pools)}


async def shoot_with(world: KindWorld, *pools: dict[str, Any], **shoot: Any) -> Client:
    """A Shoot with the user data of these pools."""
    shoot.setdefault("cloudProfile", cloud_profile(("1.0.0", IMAGE)))
    made = await world.shoot(**shoot)
    for one in pools:
        await made.secret(one["userDataSecretRef"]["name"], cloud_config=SCRIPT)
    return made


async def create(shoot: Client, *pools: dict[str, Any], **metadata: Any) -> None:
    await shoot.create(WORKERS, NAME, spec(shoot, *pools), **metadata)


async def listed(shoot: Client, resource: Resource, **labels: str) -> list[Object]:
    """The objects of a kind in the namespace of a Shoot."""
    selector = ",".join(f"{name}={value}" for name, value in labels.items())
    page = await shoot.kube.page(resource._replace(within=shoot.namespace, selector=selector), limit=5000)
    return [Object(raw) for raw in page.items]


async def names(shoot: Client, resource: Resource, **labels: str) -> list[str]:
    return sorted(one.name for one in await listed(shoot, resource, **labels))
