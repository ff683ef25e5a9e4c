"""The migration of Workers to another seed, with their machines."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
from typing import Any

import pytest

from tests.api.infrastructure.infrastructures import says
from tests.api.worker.simulatedmcm import simulated
from tests.api.worker.workerobjects import NAME, create, listed, names, shoot_with
from tests.support.kindworld import Client, KindWorld
from tests.support.rules import rule
from tests.support.workerexample import pool
from windowbox.errors import WindowboxError
from windowbox.models.extensions import OPERATION
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINE_CLASSES, MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES, WORKERS

pytestmark = pytest.mark.serves("worker")

KEPT = ("name", "namespace", "labels", "annotations")


def saved(found: Object) -> dict[str, Any]:
    """An object as gardenlet saves it: without owners, status and uid."""
    metadata = {name: value for name, value in found.metadata.items() if name in KEPT}
    return {"metadata": metadata, "spec": dict(found.spec)}


async def state(shoot: Client) -> dict[str, Any]:
    """The machines of a Shoot as gardenlet saves them."""
    content: dict[str, Any] = {}
    for deployment in await listed(shoot, MACHINE_DEPLOYMENTS):
        mine = {"name": deployment.name}
        sets = [one for one in await listed(shoot, MACHINE_SETS) if one.name.startswith(deployment.name)]
        content[deployment.name] = {
            "replicas": deployment.spec["replicas"],
            "machineSets": [
                saved(Object({**one.raw, "metadata": {**one.metadata, "labels": mine}})) for one in sets
            ],
            "machines": [saved(one) for one in await listed(shoot, MACHINES, **mine)],
        }
    packed = gzip.compress(json.dumps({"machineDeployments": content}).encode())
    return {"state": base64.b64encode(packed).decode()}


async def forget_machines(shoot: Client) -> None:
    """Remove a Worker and its machine objects, as gardenlet does on the old seed."""
    await shoot.kube.delete(WORKERS, shoot.namespace, NAME)
    for kind in (MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES, MACHINE_CLASSES):
        for one in await listed(shoot, kind):
            with contextlib.suppress(WindowboxError):  # the garbage collector may have been faster
                await shoot.delete(kind, one.name)
                await shoot.merge(kind, one.name, {"metadata": {"finalizers": None}})
    await shoot.until_gone(WORKERS, NAME)


@rule("A5-R3", "A5-R4", "A15-R4", "A2-R1", "A2-R11")
async def test_machines_survive_the_migration_of_their_worker(world: KindWorld) -> None:
    small = pool(minimum=1, maximum=8, zones=["a", "b"])
    shoot = await shoot_with(world, small)
    async with simulated(shoot.kube, shoot.namespace):
        await create(shoot, small)
        await shoot.until_ready(WORKERS, NAME)
        name = f"{shoot.namespace}-small-z1"
        await shoot.merge(MACHINE_DEPLOYMENTS, name, {"spec": {"replicas": 3}})
        await shoot.until(
            MACHINE_DEPLOYMENTS, name, lambda found: bool(found and found.status.get("replicas") == 3)
        )
    kept, machines = await state(shoot), await names(shoot, MACHINES)
    assert len(machines) == 3
    await shoot.ask(WORKERS, NAME, "migrate")
    found = await shoot.until(WORKERS, NAME, says("Succeeded", "Successfully migrated Worker"))
    assert found
    assert await names(shoot, MACHINES) == machines

    # The other seed: the same namespace without anything that was there.
    await forget_machines(shoot)
    await world.quiet()
    await create(shoot, small, operation="wait-for-state")
    await shoot.merge(WORKERS, NAME, {"status": {"state": kept}}, part="status")
    await world.quiet()
    found = await shoot.get(WORKERS, NAME)
    assert found
    assert (dict(found.status), found.finalizers) == ({"state": kept}, ())
    await shoot.ask(WORKERS, NAME, "restore")
    await shoot.until(MACHINE_DEPLOYMENTS, name, lambda found: found is not None)
    assert await names(shoot, MACHINES) == machines
    assert len(await names(shoot, MACHINE_SETS)) == 2
    deployment = await shoot.get(MACHINE_DEPLOYMENTS, name)
    assert deployment
    assert deployment.spec["replicas"] == 3

    # A machine that goes while its Worker waits does not come back.
    await shoot.delete(MACHINES, machines[0])
    await shoot.until_gone(MACHINES, machines[0])
    await shoot.merge(MACHINE_DEPLOYMENTS, name, {"status": {"observedGeneration": 1}}, part="status")
    await world.quiet()
    assert await names(shoot, MACHINES) == machines[1:]
    async with simulated(shoot.kube, shoot.namespace):
        found = await shoot.until_ready(WORKERS, NAME)
        assert OPERATION not in found.annotations
        assert found.last_operation["description"] == "Successfully reconciled Worker"


async def test_a_worker_without_saved_machines_gets_new_ones(world: KindWorld) -> None:
    small = pool()
    shoot = await shoot_with(world, small)
    async with simulated(shoot.kube, shoot.namespace):
        await create(shoot, small, operation="restore")
        found = await shoot.until_ready(WORKERS, NAME)
    assert found.last_operation["type"] == "Restore"
    assert len(await names(shoot, MACHINES)) == 1
