"""Shoots of clouds as gardenlet gives them to extensions, from the shipped examples."""

from __future__ import annotations

import base64
from copy import deepcopy
from functools import cache
from typing import Any

from sandbox.shoots import cloudmanifests
from tests.support.kindworld import CLOUDPROVIDER, Client, KindWorld
from windowbox.models.clouds import CLOUD_TYPES
from windowbox.models.objects import Object
from windowbox.models.refs import INFRASTRUCTURES, WORKERS
from windowbox.settings.cloudsettings import CloudSettings

PROVIDER_NAMESPACE = "garden-clouds"
IMAGE = "example/machine:1"
SETTINGS = CloudSettings(types=CLOUD_TYPES, provider=f"{PROVIDER_NAMESPACE}/machines", image=IMAGE)
SCRIPT = b"#!/bin/bash\necho <<MACHINE_NAME>>\n"
"""User data."""
_SSH_KEY = base64.b64encode(b"ssh-rsa AAAA example").decode()


def example(cloud: str) -> dict[str, Any]:
    """The objects of a cloud's example by kind. They may be changed."""
    return deepcopy(_read(cloud))


@cache
def _read(cloud: str) -> dict[str, Any]:
    return cloudmanifests.example(cloud)


def changed(object: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The object with other values at some paths such as `networks/zones/0/name`; None removes a field."""
    found = deepcopy(object)
    for path, value in changes.items():
        *heads, last = (int(part) if part.isdecimal() else part for part in path.split("/"))
        target: Any = found
        for head in heads:
            target = target[head] if isinstance(head, int) else target.setdefault(head, {})
        if value is None:
            del target[last]
        else:
            target[last] = deepcopy(value)
    return found


async def cloud_shoot(
    world: KindWorld, cloud: str, changes: dict[str, Any] | None = None, *, name: str = ""
) -> Client:
    """A Shoot of a cloud, with its Cluster and Secrets; `changes` of the Shoot's spec."""
    given = example(cloud)
    there = world.client(PROVIDER_NAMESPACE)
    await there.namespace_exists()
    await there.secret("machines", kubeconfig=world.kubeconfig())
    spec = changed(given["Shoot"]["spec"], changes or {})
    shoot = await world.shoot(name, spec=spec, cloudProfile=given["CloudProfile"])
    data = {name: base64.b64decode(one) for name, one in given["Secret"]["data"].items()}
    await shoot.secret(CLOUDPROVIDER, **data)
    return shoot


async def infrastructure(shoot: Client, cloud: str, changes: dict[str, Any] | None = None) -> Object:
    """The Infrastructure of such a Shoot; `changes` of its config."""
    of_shoot = example(cloud)["Shoot"]["spec"]
    spec = {
        "type": cloud,
        "region": of_shoot["region"],
        "secretRef": {"name": CLOUDPROVIDER, "namespace": shoot.namespace},
        "sshPublicKey": _SSH_KEY,
        "providerConfig": changed(of_shoot["provider"]["infrastructureConfig"], changes or {}),
    }
    return await shoot.create(INFRASTRUCTURES, "cloud", spec)


def config(cloud: str, **fields: Any) -> dict[str, Any]:
    """A WorkerConfig."""
    group = f"{cloud}.provider.extensions.gardener.cloud/v1alpha1"
    return {"apiVersion": group, "kind": "WorkerConfig", **fields}


def pools(cloud: str, changes: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """The pools of the example as a Worker has them; `changes` of that list."""
    given = example(cloud)
    types = {one["name"]: one for one in given["CloudProfile"]["spec"]["machineTypes"]}
    found = []
    for one in given["Shoot"]["spec"]["provider"]["workers"]:
        machine, name = one["machine"], one["name"]
        capacity = {amount: types[machine["type"]][amount] for amount in ("cpu", "gpu", "memory")}
        found.append(
            {field: value for field, value in one.items() if field != "machine"}
            | {
                "machineType": machine["type"],
                "machineImage": machine["image"],
                "architecture": "amd64",
                "kubernetesVersion": given["Shoot"]["spec"]["kubernetes"]["version"],
                "nodeAgentSecretName": f"gardener-node-agent-{name}-0a1b2",
                "nodeTemplate": {"capacity": capacity},
                "userDataSecretRef": {"name": f"osc-{name}", "key": "cloud_config"},
            }
        )
    wanted: list[dict[str, Any]] = changed({"pools": found}, _below("pools", changes))["pools"]
    return wanted


def _below(head: str, changes: dict[str, Any] | None) -> dict[str, Any]:
    return {f"{head}/{path}": value for path, value in (changes or {}).items()}


async def worker_spec(shoot: Client, cloud: str, changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """The spec of the Worker of a Shoot whose Infrastructure is ready; `changes` of its pools."""
    network = await shoot.until_ready(INFRASTRUCTURES, "cloud")
    asked = pools(cloud, changes)
    for one in asked:
        await shoot.secret(one["userDataSecretRef"]["name"], cloud_config=SCRIPT)
    return {
        "type": cloud,
        "region": network.spec["region"],
        "secretRef": network.spec["secretRef"],
        "sshPublicKey": _SSH_KEY,
        "infrastructureProviderStatus": network.status["providerStatus"],
        "pools": asked,
    }


async def worker(shoot: Client, cloud: str, changes: dict[str, Any] | None = None) -> None:
    """The same as an object."""
    await shoot.create(WORKERS, "cloud", await worker_spec(shoot, cloud, changes))
