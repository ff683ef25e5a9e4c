"""The migration of Workers to another seed, with their machines."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.infrastructure.infrastructures import says
from tests.api.worker import workerobjects
from tests.api.worker.workerobjects import NAME
from tests.support.kindworld import KindWorld
from tests.support.rules import rule
from tests.support.workerexample import pool, saved_state
from windowbox.models import refs
from windowbox.models.extensions import OPERATION

pytestmark = [
    pytest.mark.serves("worker", "machinedeployment", "machineset"),
    pytest.mark.asyncio(loop_scope="module"),
]


@rule("A5-R3", "A5-R4", "A15-R4", "A2-R1", "A2-R11")
async def test_machines_survive_the_migration_of_their_worker(world: KindWorld) -> None:
    small = pool(minimum=1, maximum=8, zones=["a", "b"])
    shoot = await workerobjects.shoot_with(world, small)
    async with workerobjects.driven(shoot, remembers=True) as driver:
        await workerobjects.ready(shoot, small)
        await shoot.merge(
            refs.MACHINE_DEPLOYMENTS, workerobjects.deployment(shoot), {"spec": {"replicas": 3}}
        )
        await workerobjects.until_deployed(shoot, lambda found: found.status.get("availableReplicas") == 3)
        kept, machines = await workerobjects.state(shoot), await workerobjects.names(shoot, refs.MACHINES)
        sets = await workerobjects.names(shoot, refs.MACHINE_SETS)
        assert (len(machines), len(sets)) == (3, 2)
        await shoot.ask(refs.WORKERS, NAME, "migrate")
        await shoot.until(refs.WORKERS, NAME, says("Succeeded", "Successfully migrated Worker"))
        await shoot.until(refs.WORKERS, NAME, lambda found: found is not None and not found.finalizers)
        assert await workerobjects.names(shoot, refs.MACHINES) == machines

        # The other seed: the same namespace, emptied.
        await workerobjects.forget_machines(shoot)
        await world.quiet()
        await workerobjects.create(shoot, small, operation="wait-for-state")
        await shoot.merge(refs.WORKERS, NAME, {"status": {"state": kept}}, part="status")
        await world.quiet()
        waiting = await shoot.get(refs.WORKERS, NAME)
        assert waiting
        assert (dict(waiting.status), waiting.finalizers) == ({"state": kept}, ())
        await shoot.ask(refs.WORKERS, NAME, "restore")
        found = await shoot.until_ready(refs.WORKERS, NAME)
        assert OPERATION not in found.annotations
        assert found.last_operation["type"] == "Restore"
        assert found.last_operation["description"] == "Successfully reconciled Worker"
        await world.quiet()
        assert (await workerobjects.until_deployed(shoot)).spec["replicas"] == 3
        assert await workerobjects.names(shoot, refs.MACHINES) == machines
        assert await workerobjects.names(shoot, refs.MACHINE_SETS) == sets
        assert {one.name for one in driver.seen} == set(machines)  # no others existed for a moment


@pytest.mark.serves("worker")
async def test_a_machine_deleted_during_a_restoration_is_not_recreated(world: KindWorld) -> None:
    small = pool(maximum=8)
    shoot = await workerobjects.shoot_with(world, small)
    name, class_ = workerobjects.deployment(shoot), {"class": {"kind": "MachineClass", "name": "former"}}

    def one(name_: str, **spec: Any) -> dict[str, Any]:
        return {"metadata": {"name": name_, "labels": {"name": name}}, "spec": spec}

    machines = [one(f"m{number}", **class_) for number in range(3)]
    sets = [one("set", replicas=3, template={"spec": class_})]
    kept = saved_state({name: {"replicas": 3, "machineSets": sets, "machines": machines}})
    await workerobjects.create(shoot, small, operation="wait-for-state")
    await shoot.merge(refs.WORKERS, NAME, {"status": {"state": kept}}, part="status")
    await shoot.ask(refs.WORKERS, NAME, "restore")
    await workerobjects.until_deployed(shoot)
    assert await workerobjects.names(shoot, refs.MACHINES) == ["m0", "m1", "m2"]
    await shoot.delete(refs.MACHINES, "m0")
    await shoot.until_gone(refs.MACHINES, "m0")
    await shoot.merge(refs.MACHINE_DEPLOYMENTS, name, {"status": {"observedGeneration": 1}}, part="status")
    await world.quiet()
    assert await workerobjects.names(shoot, refs.MACHINES) == ["m1", "m2"]


@pytest.mark.long  # restoration is above, new machines are in test_worker.py
async def test_a_worker_without_saved_machines_gets_new_ones(world: KindWorld) -> None:
    small = pool()
    shoot = await workerobjects.shoot_with(world, small)
    async with workerobjects.driven(shoot):
        found = await workerobjects.ready(shoot, small, operation="restore")
    assert found.last_operation["type"] == "Restore"
    assert len(await workerobjects.names(shoot, refs.MACHINES)) == 1
