"""Bastions in a Shoot, with a simulated load balancer and node."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.kindworld import Client, KindWorld
from tools.bench.audit import WRITES
from windowbox.models.objects import Object
from windowbox.models.refs import BASTIONS, NAMESPACES, NETWORK_POLICIES, PODS, SECRETS, SERVICES

SCRIPT = b"#!/bin/bash\necho hello\n"
IMAGE = "registry.local/node:v1.0.0"
PARTS = (SECRETS, PODS, SERVICES, NETWORK_POLICIES)
ADDRESS = {"ip": "172.18.255.231", "ipMode": "Proxy"}


def cloud_profile(*versions: tuple[str, str], **spec: Any) -> dict[str, Any]:
    """One whose image `local` has these versions, each with a container image."""
    versions = versions or (("1.0.0", IMAGE),)
    config = {
        "apiVersion": "local.provider.extensions.gardener.cloud/v1alpha1",
        "kind": "CloudProfileConfig",
        "machineImages": [
            {"name": "local", "versions": [{"version": name, "image": image} for name, image in versions]}
        ],
    }
    return {
        "apiVersion": "core.gardener.cloud/v1beta1",
        "kind": "CloudProfile",
        "metadata": {"name": "local"},
        "spec": {
            "machineTypes": [{"name": "local", "cpu": "1"}],
            "machineImages": [{"name": "local", "versions": [{"version": name} for name, _ in versions]}],
            "providerConfig": config,
            **spec,
        },
    }


@dataclass(frozen=True)
class Yard:
    """A Shoot, and the namespace of its machines, with a simulated load balancer and node."""

    shoot: Client
    there: Client

    async def create(self, name: str = "cli", *cidrs: str, **metadata: Any) -> None:
        await self.shoot.create(BASTIONS, name, spec(*cidrs), **metadata)

    async def balanced(self, name: str = "bastion-cli", ingress: dict[str, Any] | None = None) -> None:
        status = {"loadBalancer": {"ingress": [ingress or ADDRESS]}}
        await self.there.until(SERVICES, name, lambda found: found is not None)
        await self.there.merge(SERVICES, name, {"status": status}, part="status")

    async def started(self, name: str = "bastion-cli") -> None:
        await self.there.until(PODS, name, lambda found: found is not None)
        ready = [{"type": "Ready", "status": "True"}]
        await self.there.merge(
            PODS, name, {"status": {"phase": "Running", "conditions": ready}}, part="status"
        )

    async def ready(self, name: str = "cli") -> Object:
        """The Bastion, after both have simulated their parts."""
        await self.balanced(f"bastion-{name}")
        await self.started(f"bastion-{name}")
        return await self.shoot.until_ready(BASTIONS, name)

    async def gone(self, name: str = "cli") -> None:
        await self.shoot.delete(BASTIONS, name)
        await self.shoot.until_gone(BASTIONS, name)


def spec(*cidrs: str) -> dict[str, Any]:
    return {
        "userData": base64.b64encode(SCRIPT).decode(),
        "ingress": [{"ipBlock": {"cidr": cidr}} for cidr in cidrs or ("203.0.113.7/32",)],
    }


async def yard(world: KindWorld, profile: dict[str, Any] | None = None, *, home: bool = True) -> Yard:
    shoot = await world.shoot(cloudProfile=profile or cloud_profile())
    made = Yard(shoot, world.client(f"infra-{shoot.namespace}"))
    if home:
        await appear(made)
    return made


async def standing(world: KindWorld, **metadata: Any) -> Yard:
    """A yard with a ready Bastion."""
    made = await yard(world)
    await made.create(**metadata)
    await made.ready()
    await world.quiet()
    return made


async def appear(made: Yard) -> None:
    """Create the namespace of the machines, as an Infrastructure does."""
    await made.there.kube.create(NAMESPACES, "", {"metadata": {"name": made.there.namespace}})


def written(requests: Mapping[str, int]) -> dict[str, int]:
    """The requests that write."""
    return {name: count for name, count in requests.items() if name.split()[0] in WRITES}
