"""Workers as gardenlet makes them, and the example of the contract."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.api.bastion.bastions import cloud_profile
from tests.support.kindworld import CLOUDPROVIDER, Client, KindWorld
from windowbox.models.objects import Object
from windowbox.models.refs import WORKERS, Resource

NAME = "demo"
IMAGE = "registry.local/node:v1.0.0"
SCRIPT = b"#!/bin/bash\necho <<MACHINE_NAME>>\n"


def example(heading: str) -> list[Any]:
    """The YAML documents of a part of appendix 1 of the contract."""
    contract = Path(__file__).parents[4] / "shared" / "contract" / "worker-machine.md"
    if not contract.exists():
        pytest.skip("the contract is not beside the repository")
    text = contract.read_text()
    part = text[text.index(f"\n### {heading} ") + 1 :]
    blocks = part[: part.index("\n#", 1)].split("```yaml\n")[1:]
    return [found for block in blocks for found in yaml.safe_load_all(block.split("```")[0]) if found]


def pool(name: str = "small", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "machineType": "local",
        "minimum": 1,
        "maximum": 1,
        "maxSurge": 1,
        "maxUnavailable": 0,
        "machineImage": {"name": "local", "version": "1.0.0"},
        "kubernetesVersion": "1.35.4",
        "nodeAgentSecretName": f"gardener-node-agent-{name}-0123456789abcdef",
        "userDataSecretRef": {"name": f"osc-{name}", "key": "cloud_config"},
        "nodeTemplate": {"capacity": {"cpu": "1", "gpu": "0", "memory": "8Gi"}},
        **more,
    }


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
