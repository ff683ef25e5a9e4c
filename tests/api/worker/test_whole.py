"""Workers with our own MachineDeployments and MachineSets, and a simulated driver."""

from __future__ import annotations

import pytest

from tests.api.worker.test_restoration import forget_machines, state
from tests.api.worker.workerobjects import NAME, create, listed, names, shoot_with, spec
from tests.support.kindworld import KindWorld
from tests.support.machinedriver import SimulatedDriver
from tests.support.running import running
from tests.support.workerexample import pool
from windowbox.models.refs import (
    CLUSTERS,
    MACHINE_CLASSES,
    MACHINE_DEPLOYMENTS,
    MACHINE_SETS,
    MACHINES,
    WORKERS,
)

pytestmark = pytest.mark.serves("worker", "machinedeployment", "machineset")


async def test_machines_are_created_replaced_hibernated_and_deleted(world: KindWorld) -> None:
    small = pool(minimum=2, maximum=4, zones=["a", "b"])
    shoot = await shoot_with(world, small)
    async with running(SimulatedDriver(shoot.kube, shoot.namespace).run()):
        await create(shoot, small)
        await shoot.until_ready(WORKERS, NAME)
        before = await names(shoot, MACHINES)
        assert len(before) == 2
        rolled = {**small, "nodeAgentSecretName": "gardener-node-agent-other"}
        await shoot.ask(WORKERS, NAME, spec=spec(shoot, rolled))
        await shoot.until(
            WORKERS, NAME, lambda found: bool(found and found.last_operation["state"] != "Succeeded")
        )
        await shoot.until_ready(WORKERS, NAME)
        after = await names(shoot, MACHINES)
        assert len(after) == 2
        assert not set(before) & set(after)
        assert len(await names(shoot, MACHINE_CLASSES)) == 2

        cluster = await shoot.get(CLUSTERS, shoot.namespace)
        assert cluster
        profile = cluster.spec["cloudProfile"]
        await shoot.cluster(cloudProfile=profile, spec={"hibernation": {"enabled": True}})
        await shoot.ask(WORKERS, NAME)
        for machine in after:
            await shoot.until_gone(MACHINES, machine)
        await shoot.until_ready(WORKERS, NAME)
        await shoot.cluster(cloudProfile=profile)
        await shoot.ask(WORKERS, NAME)
        name = f"{shoot.namespace}-small-z2"
        await shoot.until(
            MACHINE_DEPLOYMENTS, name, lambda found: bool(found and found.spec["replicas"] == 1)
        )
        await shoot.until_ready(WORKERS, NAME)
        await shoot.until(
            MACHINE_DEPLOYMENTS,
            name,
            lambda found: bool(found and found.status.get("availableReplicas") == 1),
        )
        await shoot.delete(WORKERS, NAME)
        await shoot.until_gone(WORKERS, NAME)
    for kind in (MACHINES, MACHINE_SETS, MACHINE_DEPLOYMENTS, MACHINE_CLASSES):
        assert await names(shoot, kind) == []


async def test_a_restored_worker_keeps_its_machines(world: KindWorld) -> None:
    small = pool(minimum=3, maximum=6)
    shoot = await shoot_with(world, small)
    driver = SimulatedDriver(shoot.kube, shoot.namespace, remembers=True)
    async with running(driver.run()):
        await create(shoot, small)
        await shoot.until_ready(WORKERS, NAME)
        kept = await state(shoot)
        [owner] = await listed(shoot, MACHINE_SETS)
        machines = await names(shoot, MACHINES)
        await shoot.ask(WORKERS, NAME, "migrate")
        await shoot.until(WORKERS, NAME, lambda found: bool(found and not found.finalizers))
        await forget_machines(shoot)
        await world.quiet()
        await create(shoot, small, operation="wait-for-state")
        await shoot.merge(WORKERS, NAME, {"status": {"state": kept}}, part="status")
        await shoot.ask(WORKERS, NAME, "restore")
        found = await shoot.until_ready(WORKERS, NAME)
        assert found.last_operation["type"] == "Restore"
        await world.quiet()
        assert await names(shoot, MACHINES) == machines
        assert await names(shoot, MACHINE_SETS) == [owner.name]
        assert {one.name for one in driver.seen} == set(machines)  # nor were there others for a moment
