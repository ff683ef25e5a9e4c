"""Workers, from the API to their MachineDeployments."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.api.bastion.bastions import cloud_profile
from tests.api.infrastructure.infrastructures import says
from tests.api.worker.simulatedmcm import simulated
from tests.api.worker.workerobjects import NAME, SCRIPT, create, listed, names, shoot_with, spec
from tests.support.kindworld import Client, KindWorld, kind_world
from tests.support.natsserver import NatsServer
from tests.support.rules import rule
from tests.support.servers import ControlPlane
from tests.support.workerexample import pool
from windowbox.models.extensions import FORCE_DELETION
from windowbox.models.objects import Object
from windowbox.models.refs import (
    CLUSTERS,
    DEPLOYMENTS,
    MACHINE_CLASSES,
    MACHINE_DEPLOYMENTS,
    MACHINE_SETS,
    MACHINES,
    SECRETS,
    WORKERS,
)
from windowbox.settings.kindsettings import KindSettings, MachineSettings

pytestmark = pytest.mark.serves("worker")

CLASS_SECRETS = {"gardener.cloud/purpose": "machineclass"}


def condition(found: Object | None) -> dict[str, Any]:
    """`EveryNodeReady` of a Worker."""
    listed = (found.status.get("conditions") if found else None) or [{}]
    return dict(listed[0])


async def machine_class(shoot: Client, zone: str = "small-z1") -> str:
    """The class of a MachineDeployment."""
    found = await shoot.get(MACHINE_DEPLOYMENTS, f"{shoot.namespace}-{zone}")
    assert found
    return str(found.spec["template"]["spec"]["class"]["name"])


@rule("A4-R1", "A11-R9", "A18-R5")
async def test_a_worker_gets_its_machines_and_is_deleted(world: KindWorld) -> None:
    small = pool(minimum=3, maximum=5, zones=["a", "b"])
    shoot = await shoot_with(world, small)
    await create(shoot, small)
    found = await shoot.until(WORKERS, NAME, says("Processing", "to create the updated machine set"))
    assert found
    first, second = (f"{shoot.namespace}-small-z{zone}" for zone in (1, 2))
    assert found.status["machineDeployments"] == [
        {"name": first, "minimum": 2, "maximum": 3},
        {"name": second, "minimum": 1, "maximum": 2},
    ]
    assert condition(found)["status"] == "False"
    secret = await shoot.get(SECRETS, await machine_class(shoot))
    assert secret
    assert base64.b64decode(secret.raw["data"]["userData"]) == SCRIPT
    async with simulated(shoot.kube, shoot.namespace) as mcm:
        mcm.held = True
        mcm.wake()
        text = "(0/3 desired machine(s) available, 3/3 machine(s) updated, 3 machine(s) pending"
        await shoot.until(WORKERS, NAME, says("Processing", text))
        mcm.held = False
        mcm.wake()
        found = await shoot.until_ready(WORKERS, NAME)
        assert condition(found)["message"] == "All health checks successful"
        assert found.finalizers == ("extensions.gardener.cloud/worker",)
        await shoot.delete(WORKERS, NAME)
        await shoot.until_gone(WORKERS, NAME)
    for kind in (MACHINE_CLASSES, MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES):
        assert await names(shoot, kind) == []
    assert await names(shoot, SECRETS, **CLASS_SECRETS) == []


@rule("A4-R2", "A4-R3", "A13-R1", "A13-R3", "A9-R1")
async def test_unwanted_objects_are_deleted_after_the_wanted_are_ready(world: KindWorld) -> None:
    small, old = pool(minimum=1, maximum=4), pool("old")
    shoot = await shoot_with(world, small, old)
    async with simulated(shoot.kube, shoot.namespace) as mcm:
        await create(shoot, small, old)
        await shoot.until_ready(WORKERS, NAME)
        former = await machine_class(shoot)
        # As the autoscaler does:
        scaled = {"spec": {"replicas": 3}}
        await shoot.merge(MACHINE_DEPLOYMENTS, f"{shoot.namespace}-small-z1", scaled)
        mcm.held = True
        rolled = {**small, "nodeAgentSecretName": "gardener-node-agent-other"}
        await shoot.ask(WORKERS, NAME, spec=spec(shoot, rolled))
        await shoot.until(WORKERS, NAME, says("Processing", "0/3 desired machine(s) available"))
        assert f"{shoot.namespace}-old-z1" in await names(shoot, MACHINE_DEPLOYMENTS)
        assert former in await names(shoot, MACHINE_CLASSES)
        foreign = {"provider": "other", "providerSpec": {}, "metadata": {"name": "foreign"}}
        head = {"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass"}
        await shoot.kube.create(MACHINE_CLASSES, shoot.namespace, head | foreign)
        mcm.held, mcm.failed_when_deleted = False, "disk is busy"
        mcm.wake()
        await shoot.until(WORKERS, NAME, says("Error", "machine m-1 failed: disk is busy"))
        mcm.failed_when_deleted = ""
        mcm.wake()
        await shoot.until_ready(WORKERS, NAME)
        assert await names(shoot, MACHINE_DEPLOYMENTS) == [f"{shoot.namespace}-small-z1"]
        current = await machine_class(shoot)
        assert current != former
        assert await names(shoot, MACHINE_CLASSES) == [current]
        assert await names(shoot, SECRETS, **CLASS_SECRETS) == [current]
        [deployment] = await listed(shoot, MACHINE_DEPLOYMENTS)
        assert deployment.spec["replicas"] == 3


async def test_a_repeated_request_writes_only_the_status(world: KindWorld) -> None:
    small = pool(zones=["a", "b"])
    shoot = await shoot_with(world, small)
    async with simulated(shoot.kube, shoot.namespace):
        await create(shoot, small)
        await shoot.until_ready(WORKERS, NAME)
        await world.quiet()
        audit = world.audit()
        await shoot.ask(WORKERS, NAME)
        await shoot.until_ready(WORKERS, NAME)
        await world.quiet()
    requests = audit.requests()
    assert {name: count for name, count in requests.items() if not name.startswith(("get ", "list "))} == {
        "patch workers": 1, "patch workers/status": 1,
    }  # fmt: skip


@rule("A18-R4", "A11-R1", "A11-R10")
async def test_failed_machines_are_reported_at_once_until_they_are_gone(world: KindWorld) -> None:
    small = pool()
    shoot = await shoot_with(world, small)
    async with simulated(shoot.kube, shoot.namespace) as mcm:
        mcm.failed["m-1"] = "no image"
        await create(shoot, small)
        text = 'machine(s) failed: 1 error occurred: "m-1": no image'
        found = await shoot.until(WORKERS, NAME, says("Error", text))
        assert condition(found)["message"] == 'machine "m-1" failed: no image.'
        assert found
        assert found.status["machineDeployments"]
        mcm.failed.clear()
        mcm.wake()
        await shoot.until_ready(WORKERS, NAME)

        mcm.failed["m-2"] = "node is gone"
        mcm.wake()
        told = 'machine "m-2" failed: node is gone.'
        found = await shoot.until(WORKERS, NAME, lambda found: condition(found).get("message") == told)
        assert found
        assert found.last_operation["state"] == "Succeeded"


@rule("A9-R3")
async def test_a_shoot_hibernates_and_wakes_up(world: KindWorld) -> None:
    small = pool(minimum=2, maximum=3)
    shoot = await shoot_with(world, small)
    async with simulated(shoot.kube, shoot.namespace) as mcm:
        await create(shoot, small)
        await shoot.until_ready(WORKERS, NAME)
        mcm.kept_asleep = True
        cluster = await shoot.get(CLUSTERS, shoot.namespace)
        assert cluster
        profile = cluster.spec["cloudProfile"]
        await shoot.cluster(cloudProfile=profile, spec={"hibernation": {"enabled": True}})
        await shoot.ask(WORKERS, NAME)
        text = "Waiting until all machines have been hibernated (2 still awake)..."
        await shoot.until(WORKERS, NAME, says("Processing", text))
        machines = await listed(shoot, MACHINES)
        assert [one.labels["force-deletion"] for one in machines] == ["True", "True"]
        mcm.kept_asleep = False
        mcm.wake()
        found = await shoot.until_ready(WORKERS, NAME)
        assert condition(found)["message"] == "Shoot is hibernated"
        assert await names(shoot, MACHINES) == []
        await shoot.cluster(cloudProfile=profile)
        await shoot.ask(WORKERS, NAME)
        awake = "All health checks successful"
        await shoot.until(WORKERS, NAME, lambda found: condition(found).get("message") == awake)
        await shoot.until_ready(WORKERS, NAME)
        assert len(await names(shoot, MACHINES)) == 2


@rule("A6-R5")
async def test_missing_user_data_is_reported_and_awaited(world: KindWorld) -> None:
    small = pool()
    shoot = await shoot_with(world)
    await create(shoot, small)
    text = "failed fetching user data secret osc-small referenced in worker pool small: "
    found = await shoot.until(WORKERS, NAME, says("Error", text))
    assert found
    assert found.status["lastError"]["codes"] == ["ERR_CONFIGURATION_PROBLEM"]
    await shoot.secret("osc-small", other=b"x")
    await shoot.ask(WORKERS, NAME)
    text = "User data secret osc-small for worker pool small has no cloud_config field or it's empty"
    await shoot.until(WORKERS, NAME, says("Error", text[1:]))
    await shoot.secret("osc-small", cloud_config=SCRIPT)
    await shoot.ask(WORKERS, NAME)
    await shoot.until(WORKERS, NAME, says("Processing", "machine set"))


@rule("A5-R1", "L15")
async def test_a_worker_without_pools_is_deleted_at_once(world: KindWorld) -> None:
    shoot = await shoot_with(world)
    await create(shoot)
    await shoot.until_ready(WORKERS, NAME)
    await shoot.delete(WORKERS, NAME)
    await shoot.until_gone(WORKERS, NAME)


@rule("L16")
async def test_a_worker_is_deleted_without_its_image_and_user_data(world: KindWorld) -> None:
    small = pool()
    shoot = await shoot_with(world, small)
    async with simulated(shoot.kube, shoot.namespace):
        await create(shoot, small)
        await shoot.until_ready(WORKERS, NAME)
        await shoot.kube.delete(SECRETS, shoot.namespace, "osc-small")
        await shoot.cluster(cloudProfile={"spec": {}})
        await shoot.merge(WORKERS, NAME, {"status": {"providerStatus": None}}, part="status")
        await shoot.delete(WORKERS, NAME)
        await shoot.until_gone(WORKERS, NAME)
    assert await names(shoot, MACHINE_CLASSES) == []


async def test_a_deletion_reports_remaining_objects(world: KindWorld) -> None:
    small = pool()
    shoot = await shoot_with(world, small)
    async with simulated(shoot.kube, shoot.namespace) as mcm:
        await create(shoot, small)
        await shoot.until_ready(WORKERS, NAME)
        mcm.held = True
        await shoot.delete(WORKERS, NAME)
        text = "deleted: 1 machines, 1 machine sets, 1 machine deployments, 1 machine classes"
        await shoot.until(WORKERS, NAME, says("Processing", text))
        assert [one.labels["force-deletion"] for one in await listed(shoot, MACHINES)] == ["True"]
        mcm.held = False
        mcm.wake()
        await shoot.until_gone(WORKERS, NAME)


@rule("A5-R2")
async def test_a_deletion_waits_for_the_release_of_the_credentials(world: KindWorld) -> None:
    shoot = await shoot_with(world)
    held = {"metadata": {"finalizers": ["machine.sapcloud.io/machine-controller"]}}
    await shoot.merge(SECRETS, "cloudprovider", held)
    await create(shoot)
    await shoot.until_ready(WORKERS, NAME)
    await shoot.delete(WORKERS, NAME)
    await shoot.until(WORKERS, NAME, says("Processing", "has not yet been acquired or released"))
    await shoot.merge(SECRETS, "cloudprovider", {"metadata": {"finalizers": None}})
    await shoot.until_gone(WORKERS, NAME)


@rule("A2-R8")
async def test_a_forced_deletion_leaves_the_machines(world: KindWorld) -> None:
    small = pool()
    shoot = await shoot_with(world, small)
    await create(shoot, small)
    await shoot.until(WORKERS, NAME, says("Processing", "machine set"))
    await shoot.cluster(metadata={"annotations": {FORCE_DELETION: "true"}})
    await world.quiet()
    await shoot.delete(WORKERS, NAME)
    await shoot.until_gone(WORKERS, NAME)
    assert len(await names(shoot, MACHINE_DEPLOYMENTS)) == 1


@rule("A15-R7", "A11-R2")
async def test_machine_controller_manager_hibernates_with_the_shoot(
    plane: ControlPlane, nats: NatsServer
) -> None:
    settings = KindSettings(machines=MachineSettings(mode="driver"))
    async with kind_world(plane, nats, "worker", kinds=settings) as world:
        shoot = await shoot_with(world, spec={"hibernation": {"enabled": True}})
        labels = {"role": "machine-controller-manager"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "b"}]}}
        body = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "machine-controller-manager"},
            "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
        }
        await shoot.kube.create(DEPLOYMENTS, shoot.namespace, body)
        await create(shoot)
        for hibernated in (True, False):
            await shoot.cluster(spec={"hibernation": {"enabled": hibernated}})
            await shoot.ask(WORKERS, NAME, "reconcile" if hibernated else "restore")
            wanted = 0 if hibernated else 1
            await shoot.until(
                DEPLOYMENTS,
                "machine-controller-manager",
                lambda found, wanted=wanted: bool(found and found.spec["replicas"] == wanted),  # type: ignore[misc]
            )


async def test_drift_is_repaired(world: KindWorld) -> None:
    small = pool()
    shoot = await shoot_with(world, small)
    async with simulated(shoot.kube, shoot.namespace):
        await create(shoot, small)
        await shoot.until_ready(WORKERS, NAME)
        await world.quiet()
        name = f"{shoot.namespace}-small-z1"
        await shoot.merge(MACHINE_DEPLOYMENTS, name, {"spec": {"replicas": 7, "minReadySeconds": 1}})
        await shoot.until(
            MACHINE_DEPLOYMENTS,
            name,
            lambda found: bool(found and (found.spec["replicas"], found.spec["minReadySeconds"]) == (1, 500)),
        )
        class_name = await machine_class(shoot)
        await shoot.delete(MACHINE_CLASSES, class_name)
        await shoot.until(MACHINE_CLASSES, class_name, lambda found: found is not None)


def machine_set(owner: Object, class_name: str, name: str) -> dict[str, Any]:
    """A MachineSet of a MachineDeployment."""
    reference = {
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": "MachineDeployment",
        "name": owner.name,
    }
    return {
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": "MachineSet",
        "metadata": {"name": name, "ownerReferences": [{**reference, "uid": owner.uid}]},
        "spec": {"template": {"spec": {"class": {"kind": "MachineClass", "name": class_name}}}},
    }


@rule("A3-R6", "A14-R1", "A11-R6")
async def test_a_manual_update_is_reported_by_the_hash_of_the_pool(world: KindWorld) -> None:
    small = pool(updateStrategy="ManualInPlaceUpdate", maxSurge=0)
    shoot = await shoot_with(world, small, cloudProfile=cloud_profile(("1.0.0", "one"), ("2.0.0", "two")))
    name = f"{shoot.namespace}-small-z1"

    def hash_of(found: Object | None) -> str:
        told = found.status.get("inPlaceUpdates", {}) if found else {}
        return str(told.get("workerPoolToHashMap", {}).get("small", ""))

    async def report(updated: int) -> None:
        """Report as machine-controller-manager does."""
        found = await shoot.get(MACHINE_DEPLOYMENTS, name)
        assert found
        available = {"type": "Available", "status": "True", "reason": "", "message": ""}
        status = {
            "observedGeneration": found.generation, "replicas": 1, "updatedReplicas": updated,
            "availableReplicas": 1, "conditions": [available],
        }  # fmt: skip
        await shoot.merge(MACHINE_DEPLOYMENTS, name, {"status": status}, part="status")

    async def with_set(set_name: str) -> str:
        """Create a set of the current class. Returns the class."""
        wanted = await machine_class(shoot)
        owner = await shoot.get(MACHINE_DEPLOYMENTS, name)
        assert owner
        await shoot.kube.create(MACHINE_SETS, shoot.namespace, machine_set(owner, wanted, set_name))
        return wanted

    await create(shoot, small)
    await shoot.until(MACHINE_DEPLOYMENTS, name, lambda found: found is not None)
    former = await with_set("old")
    await report(1)
    before = hash_of(await shoot.until_ready(WORKERS, NAME))
    assert before

    await shoot.merge(MACHINE_SETS, "old", {"status": {"replicas": 1}}, part="status")
    changed = {**small, "machineImage": {"name": "local", "version": "2.0.0"}}
    await shoot.ask(WORKERS, NAME, spec=spec(shoot, changed))
    await shoot.until(WORKERS, NAME, says("Processing", "machine set"))
    assert await with_set("new") != former
    await report(0)
    found = await shoot.until_ready(WORKERS, NAME)
    assert hash_of(found) == before
    await shoot.merge(MACHINE_SETS, "old", {"status": {"replicas": 0}}, part="status")
    await report(1)
    updated = await shoot.until(WORKERS, NAME, lambda found: hash_of(found) != before)
    assert updated
    assert updated.last_operation["state"] == "Succeeded"
