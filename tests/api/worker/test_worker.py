"""Workers, from the API to their machines, whose driver is simulated, and back."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.api.bastion.bastions import cloud_profile
from tests.api.infrastructure.infrastructures import says
from tests.api.machine.machines import phase_of
from tests.api.worker import workerobjects
from tests.api.worker.workerobjects import NAME, SCRIPT
from tests.support.kindworld import Client, KindWorld
from tests.support.machinedriver import set_phase
from tests.support.rules import rule
from tests.support.workerexample import pool
from windowbox.models import refs
from windowbox.models.extensions import FORCE_DELETION
from windowbox.models.machines import OperationState, Phase
from windowbox.models.objects import Object
from windowbox.settings.kindsettings import KindSettings, MachineSettings

pytestmark = [
    pytest.mark.serves("worker", "machinedeployment", "machineset"),
    pytest.mark.asyncio(loop_scope="module"),
]

CLASS_SECRETS = {"gardener.cloud/purpose": "machineclass"}
WELL = "All health checks successful"


def condition(found: Object | None) -> dict[str, Any]:
    """`EveryNodeReady` of a Worker."""
    listed = (found.status.get("conditions") if found else None) or [{}]
    return dict(listed[0])


async def until_condition(shoot: Client, message: str) -> Object:
    found = await shoot.until(refs.WORKERS, NAME, lambda one: condition(one).get("message") == message)
    assert found
    return found


async def until_says(shoot: Client, state: str, words: str) -> Object:
    found = await shoot.until(refs.WORKERS, NAME, says(state, words))
    assert found
    return found


async def fail(shoot: Client, machine: str, in_phase: Phase, then: Phase) -> str:
    """Fail the last operation of a machine, once it is in a phase. Returns the failure's description."""
    found = await shoot.until(refs.MACHINES, machine, lambda one: phase_of(one) == in_phase)
    assert found
    await set_phase(shoot.kube, found, then, OperationState.FAILED)
    return f"simulated: {then}"


async def hibernate(shoot: Client, asleep: bool) -> None:
    found = await shoot.get(refs.CLUSTERS, shoot.namespace)
    assert found
    profile = found.spec["cloudProfile"]
    await shoot.cluster(cloudProfile=profile, spec={"hibernation": {"enabled": asleep}})
    await shoot.ask(refs.WORKERS, NAME)


@rule("A4-R1", "A11-R9", "A18-R5")
async def test_a_worker_gets_its_machines_and_is_deleted(world: KindWorld) -> None:
    small = pool(minimum=3, maximum=5, zones=["a", "b"])
    shoot = await workerobjects.shoot_with(world, small)
    async with workerobjects.driven(shoot) as driver:
        driver.hold()
        await workerobjects.create(shoot, small)
        text = "(0/3 desired machine(s) available, 3/3 machine(s) updated, 3 machine(s) pending"
        found = await until_says(shoot, "Processing", text)
        assert found.status["machineDeployments"] == [
            {"name": workerobjects.deployment(shoot, "small-z1"), "minimum": 2, "maximum": 3},
            {"name": workerobjects.deployment(shoot, "small-z2"), "minimum": 1, "maximum": 2},
        ]
        assert condition(found)["status"] == "False"
        secret = await shoot.get(refs.SECRETS, await workerobjects.machine_class(shoot))
        assert secret
        assert base64.b64decode(secret.raw["data"]["userData"]) == SCRIPT
        driver.release(joined=3)
        found = await shoot.until_ready(refs.WORKERS, NAME)
        assert condition(found)["message"] == WELL
        assert found.finalizers == ("extensions.gardener.cloud/worker",)
        await shoot.delete(refs.WORKERS, NAME)
        text = "3 machines, 2 machine sets, 2 machine deployments, 2 machine classes"
        await until_says(shoot, "Processing", f"deleted: {text}")
        machines = await workerobjects.listed(shoot, refs.MACHINES)
        assert {one.labels["force-deletion"] for one in machines} == {"True"}
        driver.release(left=3)
        await shoot.until_gone(refs.WORKERS, NAME)
    for kind in (refs.MACHINE_CLASSES, refs.MACHINE_DEPLOYMENTS, refs.MACHINE_SETS, refs.MACHINES):
        assert await workerobjects.names(shoot, kind) == []
    assert await workerobjects.names(shoot, refs.SECRETS, **CLASS_SECRETS) == []


@rule("A4-R2", "A4-R3", "A13-R1", "A13-R3", "A9-R1")
async def test_unwanted_objects_are_deleted_after_the_wanted_are_ready(world: KindWorld) -> None:
    small, old = pool(minimum=1, maximum=4), pool("old")
    shoot = await workerobjects.shoot_with(world, small, old)
    async with workerobjects.driven(shoot) as driver:
        await workerobjects.ready(shoot, small, old)
        former, deployment = await workerobjects.machine_class(shoot), workerobjects.deployment(shoot)
        before = await workerobjects.names(shoot, refs.MACHINES)
        # As the autoscaler does:
        await shoot.merge(refs.MACHINE_DEPLOYMENTS, deployment, {"spec": {"replicas": 3}})
        await workerobjects.until_deployed(shoot, lambda found: found.status.get("availableReplicas") == 3)
        driver.hold()
        rolled = {**small, "nodeAgentSecretName": "gardener-node-agent-other"}
        await shoot.ask(refs.WORKERS, NAME, spec=workerobjects.spec(shoot, rolled))
        await until_says(shoot, "Processing", "3/3 desired machine(s) available, 1/3 machine(s) updated")
        deployments = await workerobjects.names(shoot, refs.MACHINE_DEPLOYMENTS)
        assert workerobjects.deployment(shoot, "old-z1") in deployments
        assert former in await workerobjects.names(shoot, refs.MACHINE_CLASSES)
        foreign = {"provider": "other", "providerSpec": {}, "metadata": {"name": "foreign"}}
        head = {"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass"}
        await shoot.kube.create(refs.MACHINE_CLASSES, shoot.namespace, head | foreign)
        driver.release(joined=3, left=3)
        [unwanted] = [name for name in before if "-old-" in name]
        why = await fail(shoot, unwanted, Phase.TERMINATING, Phase.TERMINATING)
        await until_says(shoot, "Error", f"machine {unwanted} failed: {why}")
        driver.release(left=1)
        await shoot.until_ready(refs.WORKERS, NAME)
        assert await workerobjects.names(shoot, refs.MACHINE_DEPLOYMENTS) == [deployment]
        current = await workerobjects.machine_class(shoot)
        assert current != former
        assert await workerobjects.names(shoot, refs.MACHINE_CLASSES) == [current]
        assert await workerobjects.names(shoot, refs.SECRETS, **CLASS_SECRETS) == [current]
        assert not set(before) & set(await workerobjects.names(shoot, refs.MACHINES))
        assert (await workerobjects.until_deployed(shoot)).spec["replicas"] == 3


@rule("A18-R4", "A11-R1", "A11-R10")
async def test_failed_machines_are_reported_at_once_until_they_are_gone(world: KindWorld) -> None:
    small = pool()
    shoot = await workerobjects.shoot_with(world, small)
    async with workerobjects.driven(shoot) as driver:
        driver.hold()
        await workerobjects.create(shoot, small)
        await workerobjects.until_deployed(shoot, lambda found: found.status.get("replicas") == 1)
        [machine] = await workerobjects.names(shoot, refs.MACHINES)
        why = await fail(shoot, machine, Phase.PENDING, Phase.CRASH_LOOP_BACK_OFF)
        text = f'machine(s) failed: 1 error occurred: "{machine}": {why}'
        found = await until_says(shoot, "Error", text)
        assert condition(found)["message"] == f'machine "{machine}" failed: {why}.'
        assert found.status["machineDeployments"]
        driver.release(joined=1)
        await shoot.until_ready(refs.WORKERS, NAME)

        await fail(shoot, machine, Phase.RUNNING, Phase.CRASH_LOOP_BACK_OFF)
        found = await until_condition(shoot, f'machine "{machine}" failed: {why}.')
        assert found.last_operation["state"] == "Succeeded"


@rule("A9-R3", "A18-R3")
async def test_a_shoot_hibernates_and_wakes_up(world: KindWorld) -> None:
    small = pool(minimum=2, maximum=3)
    shoot = await workerobjects.shoot_with(world, small)
    async with workerobjects.driven(shoot) as driver:
        await workerobjects.ready(shoot, small)
        driver.hold()
        await hibernate(shoot, True)
        text = "Waiting until all machines have been hibernated (2 still awake)..."
        await until_says(shoot, "Processing", text)
        machines = await workerobjects.listed(shoot, refs.MACHINES)
        assert [one.labels["force-deletion"] for one in machines] == ["True", "True"]
        driver.release(joined=2, left=2)
        found = await shoot.until_ready(refs.WORKERS, NAME)
        assert condition(found)["message"] == "Shoot is hibernated"
        assert await workerobjects.names(shoot, refs.MACHINES) == []
        await hibernate(shoot, False)
        await until_condition(shoot, WELL)
        await shoot.until_ready(refs.WORKERS, NAME)
        assert len(await workerobjects.names(shoot, refs.MACHINES)) == 2


@rule("A6-R5")
async def test_missing_user_data_is_reported_and_awaited(world: KindWorld) -> None:
    shoot = await workerobjects.shoot_with(world)
    await workerobjects.create(shoot, pool())
    text = "failed fetching user data secret osc-small referenced in worker pool small: "
    found = await until_says(shoot, "Error", text)
    assert found.status["lastError"]["codes"] == ["ERR_CONFIGURATION_PROBLEM"]
    await shoot.secret("osc-small", other=b"x")
    await shoot.ask(refs.WORKERS, NAME)
    text = "ser data secret osc-small for worker pool small has no cloud_config field or it's empty"
    await until_says(shoot, "Error", text)
    await shoot.secret("osc-small", cloud_config=SCRIPT)
    await shoot.ask(refs.WORKERS, NAME)
    await until_says(shoot, "Processing", "machine")


@rule("L16")
async def test_a_worker_is_deleted_without_its_image_and_user_data(world: KindWorld) -> None:
    small = pool()
    shoot = await workerobjects.shoot_with(world, small)
    async with workerobjects.driven(shoot):
        await workerobjects.ready(shoot, small)
        await shoot.kube.delete(refs.SECRETS, shoot.namespace, "osc-small")
        await shoot.cluster(cloudProfile={"spec": {}})
        await shoot.merge(refs.WORKERS, NAME, {"status": {"providerStatus": None}}, part="status")
        await shoot.delete(refs.WORKERS, NAME)
        await shoot.until_gone(refs.WORKERS, NAME)
    assert await workerobjects.names(shoot, refs.MACHINE_CLASSES) == []


@rule("A5-R1", "A5-R2", "L15")
async def test_a_deletion_waits_for_the_release_of_the_credentials(world: KindWorld) -> None:
    shoot = await workerobjects.shoot_with(world)
    held = {"metadata": {"finalizers": ["machine.sapcloud.io/machine-controller"]}}
    await shoot.merge(refs.SECRETS, "cloudprovider", held)
    await workerobjects.ready(shoot)
    await shoot.delete(refs.WORKERS, NAME)
    await until_says(shoot, "Processing", "has not yet been acquired or released")
    await shoot.merge(refs.SECRETS, "cloudprovider", {"metadata": {"finalizers": None}})
    await shoot.until_gone(refs.WORKERS, NAME)


@rule("A2-R8")
async def test_a_forced_deletion_leaves_the_machines(world: KindWorld) -> None:
    small = pool()
    shoot = await workerobjects.shoot_with(world, small)
    await workerobjects.create(shoot, small)
    await until_says(shoot, "Processing", "machine")
    await shoot.cluster(metadata={"annotations": {FORCE_DELETION: "true"}})
    await world.quiet()
    await shoot.delete(refs.WORKERS, NAME)
    await shoot.until_gone(refs.WORKERS, NAME)
    assert len(await workerobjects.names(shoot, refs.MACHINE_DEPLOYMENTS)) == 1


@rule("A15-R7", "A11-R2")
@pytest.mark.serves("worker", kinds=KindSettings(machines=MachineSettings(mode="driver")))
async def test_machine_controller_manager_hibernates_with_the_shoot(world: KindWorld) -> None:
    shoot = await workerobjects.shoot_with(world, spec={"hibernation": {"enabled": True}})
    name = await workerobjects.deploy_manager(shoot)
    await workerobjects.create(shoot)
    await shoot.until(refs.DEPLOYMENTS, name, lambda found: found is not None and found.spec["replicas"] == 0)
    await shoot.cluster(spec={"hibernation": {"enabled": False}})
    await shoot.ask(refs.WORKERS, NAME, "restore")
    await shoot.until(refs.DEPLOYMENTS, name, lambda found: found is not None and found.spec["replicas"] == 1)


@pytest.mark.long  # unit/worker/test_pools.py has the hashes
@rule("A3-R6", "A14-R1", "A11-R6")
@pytest.mark.serves("worker")
async def test_a_manual_update_is_reported_by_the_hash_of_the_pool(world: KindWorld) -> None:
    small = pool(updateStrategy="ManualInPlaceUpdate", maxSurge=0)
    shoot = await workerobjects.shoot_with(
        world, small, cloudProfile=cloud_profile(("1.0.0", "one"), ("2.0.0", "two"))
    )

    def hash_of(found: Object | None) -> str:
        updates = found.status.get("inPlaceUpdates", {}) if found else {}
        return str(updates.get("workerPoolToHashMap", {}).get("small", ""))

    await workerobjects.create(shoot, small)
    former = await workerobjects.roll_out(shoot)
    before = hash_of(await shoot.until_ready(refs.WORKERS, NAME))
    assert before

    await shoot.merge(refs.MACHINE_SETS, former, {"status": {"replicas": 1}}, part="status")
    changed = {**small, "machineImage": {"name": "local", "version": "2.0.0"}}
    await shoot.ask(refs.WORKERS, NAME, spec=workerobjects.spec(shoot, changed))
    await until_says(shoot, "Processing", "machine set")
    assert await workerobjects.roll_out(shoot, updated=0) != former
    assert hash_of(await shoot.until_ready(refs.WORKERS, NAME)) == before
    await shoot.merge(refs.MACHINE_SETS, former, {"status": {"replicas": 0}}, part="status")
    await workerobjects.roll_out(shoot)
    updated = await shoot.until(refs.WORKERS, NAME, lambda found: hash_of(found) != before)
    assert updated
    assert updated.last_operation["state"] == "Succeeded"


@pytest.mark.long  # api/bench counts the requests of more machines
async def test_many_machines_cost_few_reports(world: KindWorld) -> None:
    many = pool(minimum=20, maximum=20)
    shoot = await workerobjects.shoot_with(world, many)
    async with workerobjects.driven(shoot):
        audit = world.audit()
        await workerobjects.ready(shoot, many)
        await world.quiet()
    assert audit.requests()["patch workers/status"] <= 20
