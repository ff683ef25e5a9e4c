"""The migration of Workers to another seed, with their machines."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
from typing import Any

import pytest

from tests.api.infrastructure.infrastructures import says
from tests.api.worker.workerobjects import (
    NAME,
    create,
    deployment,
    driven,
    listed,
    names,
    ready,
    shoot_with,
    until_deployed,
)
from tests.support.kindworld import Client, KindWorld
from tests.support.rules import rule
from tests.support.workerexample import pool
from windowbox.errors import WindowboxError
from windowbox.models.extensions import OPERATION
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINE_CLASSES, MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES, WORKERS

pytestmark = pytest.mark.serves("worker", "machinedeployment", "machineset")

KEPT = ("name", "namespace", "labels", "annotations")


def saved(found: Object, **metadata: Any) -> dict[str, Any]:
    """An object as gardenlet saves it: without owners, status and uid."""
    kept = {name: value for name, value in found.metadata.items() if name in KEPT}
    return {"metadata": {**kept, **metadata}, "spec": dict(found.spec)}


def packed(content: dict[str, Any]) -> dict[str, Any]:
    text = gzip.compress(json.dumps({"machineDeployments": content}).encode())
    return {"state": base64.b64encode(text).decode()}


async def state(shoot: Client) -> dict[str, Any]:
    """The machines of a Shoot as gardenlet saves them."""
    content: dict[str, Any] = {}
    for found in await listed(shoot, MACHINE_DEPLOYMENTS):
        mine = {"name": found.name}
        sets = [one for one in await listed(shoot, MACHINE_SETS) if one.name.startswith(found.name)]
        content[found.name] = {
            "replicas": found.spec["replicas"],
            "machineSets": [saved(one, labels=mine) for one in sets],
            "machines": [saved(one) for one in await listed(shoot, MACHINES, **mine)],
        }
    return packed(content)


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
    async with driven(shoot, remembers=True) as driver:
        await ready(shoot, small)
        await shoot.merge(MACHINE_DEPLOYMENTS, deployment(shoot), {"spec": {"replicas": 3}})
        await until_deployed(shoot, lambda found: found.status.get("availableReplicas") == 3)
        kept, machines, sets = (
            await state(shoot),
            await names(shoot, MACHINES),
            await names(shoot, MACHINE_SETS),
        )
        assert (len(machines), len(sets)) == (3, 2)
        await shoot.ask(WORKERS, NAME, "migrate")
        await shoot.until(WORKERS, NAME, says("Succeeded", "Successfully migrated Worker"))
        await shoot.until(WORKERS, NAME, lambda found: found is not None and not found.finalizers)
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
        found = await shoot.until_ready(WORKERS, NAME)
        assert OPERATION not in found.annotations
        assert found.last_operation["type"] == "Restore"
        assert found.last_operation["description"] == "Successfully reconciled Worker"
        await world.quiet()
        assert (await until_deployed(shoot)).spec["replicas"] == 3
        assert await names(shoot, MACHINES) == machines
        assert await names(shoot, MACHINE_SETS) == sets
        assert {one.name for one in driver.seen} == set(machines)  # nor were there others for a moment


@pytest.mark.serves("worker")
async def test_a_machine_that_goes_during_a_restoration_does_not_come_back(world: KindWorld) -> None:
    small = pool(maximum=8)
    shoot = await shoot_with(world, small)
    name, class_ = deployment(shoot), {"class": {"kind": "MachineClass", "name": "former"}}

    def one(name_: str, **spec: Any) -> dict[str, Any]:
        return {"metadata": {"name": name_, "labels": {"name": name}}, "spec": spec}

    machines = [one(f"m{number}", **class_) for number in range(3)]
    sets = [one("set", replicas=3, template={"spec": class_})]
    kept = packed({name: {"replicas": 3, "machineSets": sets, "machines": machines}})
    await create(shoot, small, operation="wait-for-state")
    await shoot.merge(WORKERS, NAME, {"status": {"state": kept}}, part="status")
    await shoot.ask(WORKERS, NAME, "restore")
    await until_deployed(shoot)
    assert await names(shoot, MACHINES) == ["m0", "m1", "m2"]
    await shoot.delete(MACHINES, "m0")
    await shoot.until_gone(MACHINES, "m0")
    await shoot.merge(MACHINE_DEPLOYMENTS, name, {"status": {"observedGeneration": 1}}, part="status")
    await world.quiet()
    assert await names(shoot, MACHINES) == ["m1", "m2"]


async def test_a_worker_without_saved_machines_gets_new_ones(world: KindWorld) -> None:
    small = pool()
    shoot = await shoot_with(world, small)
    async with driven(shoot):
        found = await ready(shoot, small, operation="restore")
    assert found.last_operation["type"] == "Restore"
    assert len(await names(shoot, MACHINES)) == 1
