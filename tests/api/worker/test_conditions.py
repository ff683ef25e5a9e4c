"""Conditions of a Worker, which follow events."""

from __future__ import annotations

import time

import pytest

from tests.api.worker import workerobjects
from tests.api.worker.workerobjects import NAME
from tests.support.kindworld import Client, KindWorld
from tests.support.rules import rule
from tests.support.workerexample import pool
from windowbox.models.extensions import OPERATION
from windowbox.models.objects import Object
from windowbox.models.refs import DEPLOYMENTS, MACHINE_DEPLOYMENTS, MANAGED_RESOURCES, WORKERS
from windowbox.settings.kindsettings import HealthSettings, KindSettings, MachineSettings

SETTINGS = KindSettings(health=HealthSettings(conditions="long"), machines=MachineSettings(mode="driver"))
pytestmark = [
    pytest.mark.serves("worker", kinds=SETTINGS),
    pytest.mark.asyncio(loop_scope="module"),
]

BUNDLE = "extension-worker-mcm-shoot"
MANAGER = "machine-controller-manager"
TYPES = ("EveryNodeReady", "SystemComponentsHealthy", "ControlPlaneHealthy")


def said(found: Object | None, type_: str) -> str:
    """The status of a condition, and its message."""
    listed = (found.status.get("conditions") if found else None) or []
    return next((f"{one['status']}: {one['message']}" for one in listed if one["type"] == type_), "")


async def until_said(shoot: Client, type_: str, begin: str) -> None:
    await shoot.until(WORKERS, NAME, lambda found: said(found, type_).startswith(begin))


async def apply_bundle(shoot: Client, healthy: str) -> None:
    """As the resource manager does."""
    if await shoot.get(MANAGED_RESOURCES, BUNDLE) is None:
        made = {"apiVersion": "resources.gardener.cloud/v1alpha1", "kind": "ManagedResource"}
        body = made | {"metadata": {"name": BUNDLE}, "spec": {"secretRefs": [{"name": "a"}]}}
        await shoot.kube.create(MANAGED_RESOURCES, shoot.namespace, body)
    times = {"lastTransitionTime": "2026-09-01T10:00:00Z", "lastUpdateTime": "2026-09-01T10:00:00Z"}
    conditions = [
        {"type": f"Resources{name}", "status": status, "reason": "R", "message": "a Pod is away", **times}
        for name, status in (("Applied", "True"), ("Healthy", healthy))
    ]
    patch = {"status": {"observedGeneration": 1, "conditions": conditions}}
    await shoot.merge(MANAGED_RESOURCES, BUNDLE, patch, part="status")


@rule("HC-1", "HC-2", "HC-10", "HC-11", "B.29")
async def test_conditions_follow_events_and_stay_while_a_worker_migrates(world: KindWorld) -> None:
    small = pool(minimum=1, maximum=1)
    shoot = await workerobjects.shoot_with(world, small)
    await apply_bundle(shoot, "True")
    await workerobjects.create(shoot, small)
    await workerobjects.roll_out(shoot)
    found = await shoot.until_ready(WORKERS, NAME)
    assert [one["type"] for one in found.status["conditions"]] == list(TYPES)
    assert said(found, TYPES[0]) == "True: All health checks successful"
    assert said(found, TYPES[1]) == "True: All health checks successful"
    assert said(found, TYPES[2]) == (
        f'False: deployment "{MANAGER}" in namespace "{shoot.namespace}" not found.'
    )
    await workerobjects.deploy_manager(shoot)
    await until_said(shoot, TYPES[2], f'False: deployment "{MANAGER}" in namespace "{shoot.namespace}" is')
    await shoot.merge(DEPLOYMENTS, MANAGER, {"spec": {"replicas": 0}})
    await until_said(shoot, TYPES[2], "True: ")

    began = time.monotonic()
    await apply_bundle(shoot, "False")
    await until_said(shoot, TYPES[1], f'False: managed resource "{BUNDLE}"')
    print(f"a ManagedResource moved its condition in {time.monotonic() - began:.3f} s")
    await shoot.delete(DEPLOYMENTS, MANAGER)
    await until_said(shoot, TYPES[2], f'False: deployment "{MANAGER}" in namespace')

    await shoot.ask(WORKERS, NAME, "migrate")
    left = await shoot.until(WORKERS, NAME, lambda found: bool(found and not found.finalizers))
    assert left
    assert OPERATION not in left.annotations
    await apply_bundle(shoot, "True")
    await world.quiet()
    after = await shoot.get(WORKERS, NAME)
    assert after
    assert after.status["conditions"] == left.status["conditions"]


@rule("HC-1", "HC-5", "HC-9", "V-8")
async def test_machine_deployments_move_their_condition_and_keep_others(world: KindWorld) -> None:
    small = pool(minimum=1, maximum=1)
    shoot = await workerobjects.shoot_with(world, small)
    # Checks need no client of the Shoot: it may be away.
    await shoot.secret("gardener-internal", kubeconfig=world.unreachable())
    await workerobjects.create(shoot, small)
    await workerobjects.roll_out(shoot)
    created = await shoot.until_ready(WORKERS, NAME)
    await world.quiet()
    name = workerobjects.deployment(shoot)
    times = {"lastTransitionTime": "2026-09-01T10:00:00Z", "lastUpdateTime": "2026-09-01T10:00:00Z"}
    took = []
    for number in range(4):
        failed = [{"name": "m", "lastOperation": {"description": f"quota {number}"}}]
        other = {"type": "Other", "status": "True", "reason": "R", "message": str(number), **times}
        found = await shoot.get(WORKERS, NAME)
        assert found
        ours = [one for one in found.status["conditions"] if one["type"] != "Other"]
        began = time.monotonic()
        # Somebody else writes a condition in the same moment.
        await shoot.merge(MACHINE_DEPLOYMENTS, name, {"status": {"failedMachines": failed}}, part="status")
        await shoot.merge(WORKERS, NAME, {"status": {"conditions": [*ours, other]}}, part="status")
        await until_said(shoot, TYPES[0], f'False: machine "m" failed: quota {number}.')
        took.append(time.monotonic() - began)
        await world.quiet()
        now = await shoot.get(WORKERS, NAME)
        assert said(now, "Other") == f"True: {number}"
        assert said(now, TYPES[0]) == f'False: machine "m" failed: quota {number}.'
        # No client has asked for an operation since.
        assert now
        assert now.last_operation == created.last_operation
    print(f"a MachineDeployment moved its condition in {sorted(took)[2]:.3f} s, at most {max(took):.3f} s")
