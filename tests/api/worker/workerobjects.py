"""Workers as gardenlet creates them, for tests with an API server."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from tests.api.bastion.bastions import cloud_profile
from tests.support.kindworld import CLOUDPROVIDER, Client, KindWorld
from tests.support.machinedriver import SimulatedDriver
from tests.support.running import running
from tests.support.workerexample import saved_state
from windowbox.errors import Conflict, WindowboxError
from windowbox.models.objects import Object
from windowbox.models.refs import (
    DEPLOYMENTS,
    MACHINE_CLASSES,
    MACHINE_DEPLOYMENTS,
    MACHINE_SETS,
    MACHINES,
    WORKERS,
    Resource,
)
from workers.core.owned.manifests import manifest
from workers.machines import facts

NAME = "demo"
IMAGE = "registry.local/node:v1.0.0"
_KEPT = ("name", "namespace", "labels", "annotations")
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


async def ready(shoot: Client, *pools: dict[str, Any], **metadata: Any) -> Object:
    """A new Worker, once it is ready."""
    await create(shoot, *pools, **metadata)
    return await shoot.until_ready(WORKERS, NAME)


def deployment(shoot: Client, zone: str = "small-z1") -> str:
    return f"{shoot.namespace}-{zone}"


async def until_deployed(
    shoot: Client, holds: Callable[[Object], bool] = lambda found: True, zone: str = "small-z1"
) -> Object:
    """A MachineDeployment that meets the condition."""
    name = deployment(shoot, zone)
    found = await shoot.until(MACHINE_DEPLOYMENTS, name, lambda one: one is not None and holds(one))
    assert found
    return found


async def machine_class(shoot: Client) -> str:
    """The class of the pool `small`."""
    return str((await until_deployed(shoot)).spec["template"]["spec"]["class"]["name"])


async def roll_out(shoot: Client, updated: int = 1) -> str:
    """Create the set of the pool `small`, and report, as machine-controller-manager. Returns its name."""
    found, name = await until_deployed(shoot), await machine_class(shoot)
    owners, template = [facts.owner_reference(found, found.raw["kind"])], found.spec["template"]
    with contextlib.suppress(Conflict):
        made = manifest(MACHINE_SETS, name, owners=owners, spec={"template": template})
        await shoot.kube.create(MACHINE_SETS, shoot.namespace, made)
    available = {"type": "Available", "status": "True", "reason": "", "message": ""}
    counts = {"replicas": 1, "updatedReplicas": updated, "availableReplicas": 1}
    status = {"observedGeneration": found.generation, **counts, "conditions": [available]}
    await shoot.merge(MACHINE_DEPLOYMENTS, found.name, {"status": status}, part="status")
    return name


@contextlib.asynccontextmanager
async def driven(shoot: Client, **driver: Any) -> AsyncIterator[SimulatedDriver]:
    """A simulated driver lets machines of the Shoot join and terminate."""
    made = SimulatedDriver(shoot.kube, shoot.namespace, **driver)
    async with running(made.run()):
        yield made


async def listed(shoot: Client, resource: Resource, **labels: str) -> list[Object]:
    """The objects of a kind in the namespace of a Shoot."""
    selector = ",".join(f"{name}={value}" for name, value in labels.items())
    page = await shoot.kube.page(resource._replace(within=shoot.namespace, selector=selector), limit=5000)
    return [Object(raw) for raw in page.items]


async def names(shoot: Client, resource: Resource, **labels: str) -> list[str]:
    return sorted(one.name for one in await listed(shoot, resource, **labels))


async def deploy_manager(shoot: Client) -> str:
    """A machine-controller-manager, which does not run. Returns its name."""
    name = "machine-controller-manager"
    labels = {"app": "kubernetes", "role": name}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": pod}
    body = {"metadata": {"name": name, "labels": labels}, "spec": spec}
    await shoot.kube.create(DEPLOYMENTS, shoot.namespace, body)
    return name


def _saved(found: Object, **metadata: Any) -> dict[str, Any]:
    """An object as gardenlet saves it: without owners, status and uid."""
    kept = {name: value for name, value in found.metadata.items() if name in _KEPT}
    return {"metadata": {**kept, **metadata}, "spec": dict(found.spec)}


async def state(shoot: Client) -> dict[str, Any]:
    """The machines of a Shoot as gardenlet saves them."""
    content: dict[str, Any] = {}
    for found in await listed(shoot, MACHINE_DEPLOYMENTS):
        mine = {"name": found.name}
        sets = [one for one in await listed(shoot, MACHINE_SETS) if one.name.startswith(found.name)]
        content[found.name] = {
            "replicas": found.spec["replicas"],
            "machineSets": [_saved(one, labels=mine) for one in sets],
            "machines": [_saved(one) for one in await listed(shoot, MACHINES, **mine)],
        }
    return saved_state(content)


async def forget_machines(shoot: Client, worker: str = NAME) -> None:
    """Remove a Worker and its machine objects, as gardenlet does on the old seed."""
    await shoot.kube.delete(WORKERS, shoot.namespace, worker)
    for kind in (MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES, MACHINE_CLASSES):
        for one in await listed(shoot, kind):
            with contextlib.suppress(WindowboxError):  # the garbage collector may have been faster
                await shoot.delete(kind, one.name)
                await shoot.merge(kind, one.name, {"metadata": {"finalizers": None}})
    await shoot.until_gone(WORKERS, worker)
