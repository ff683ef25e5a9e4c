"""gardenlet's own health checker derives the conditions of a Shoot from our reports."""

from __future__ import annotations

import contextlib
from typing import Any

from tests.api.worker.workerobjects import NAME, create, deployment, roll_out, shoot_with
from tests.conformance.test_gardenlet import PROGRAM, run
from tests.support import servers
from tests.support.kindworld import Client, KindWorld, kind_world
from tests.support.natsserver import NatsServer
from tests.support.rules import rule
from tests.support.servers import ControlPlane
from tests.support.workerexample import pool
from windowbox.errors import Conflict
from windowbox.models.refs import HEARTBEATS, MACHINE_DEPLOYMENTS, MANAGED_RESOURCES, NAMESPACES, WORKERS
from windowbox.settings.kindsettings import HeartbeatSettings, KindSettings, MachineSettings

GARDEN = "garden"
NODES, COMPONENTS, PLANE = "EveryNodeReady", "SystemComponentsHealthy", "ControlPlaneHealthy"


async def care(shoot: Client) -> dict[str, str]:
    """The conditions of the Shoot by type: status, reason, message."""
    said, complaint = await run(shoot, "care")
    assert complaint == ""
    lines = (line.partition(" ") for line in said.splitlines())
    return {type_: rest.strip() for type_, _, rest in lines}


@rule("H-1", "H-2", "H-3", "H-4")
async def test_gardenlet_derives_conditions_from_our_reports(plane: ControlPlane, nats: NatsServer) -> None:
    servers.need(PROGRAM)
    small = pool(minimum=1, maximum=1)
    kinds = KindSettings(
        machines=MachineSettings(mode="driver"), heartbeat=HeartbeatSettings(namespace=GARDEN, interval=1)
    )
    async with kind_world(plane, nats, "worker", kinds=kinds) as world:
        await _garden(world)
        shoot = await shoot_with(world, small)
        await create(shoot, small)
        await roll_out(shoot)
        await shoot.until_ready(WORKERS, NAME)
        silent = await care(shoot)
        assert silent[NODES].startswith("Unknown WorkerOutdatedHealthCheckReport Worker extension")
        assert (silent[COMPONENTS], silent[PLANE]) == ("True", "True")
    async with kind_world(plane, nats, "worker", "heartbeat", kinds=kinds) as world:
        shoot = world.client(shoot.namespace)
        await world.client(GARDEN).until(HEARTBEATS, "gardener-extension-heartbeat", bool)
        assert await care(shoot) == {NODES: "True", COMPONENTS: "True", PLANE: "True"}

        await _fail_machine(shoot)
        assert (await care(shoot))[NODES].startswith("False WorkerUnhealthyReport Worker extension")

        await _unhealthy(shoot, "of-the-shoot")
        await _unhealthy(shoot, "of-the-seed", **{"class": "seed"})
        said = await care(shoot)
        assert "of-the-shoot" in said[COMPONENTS]
        assert "of-the-seed" in said[PLANE]


async def _garden(world: KindWorld) -> None:
    with contextlib.suppress(Conflict):  # another test has created it
        await world.kube.create(NAMESPACES, "", {"metadata": {"name": GARDEN}})


async def _fail_machine(shoot: Client) -> None:
    failed = [{"name": "m", "lastOperation": {"description": "no quota"}}]
    patch = {"status": {"failedMachines": failed}}
    await shoot.merge(MACHINE_DEPLOYMENTS, deployment(shoot), patch, part="status")
    await shoot.until(WORKERS, NAME, lambda found: "no quota" in str(found and found.status))


async def _unhealthy(shoot: Client, name: str, **spec: Any) -> None:
    times = {"lastTransitionTime": "2026-09-01T10:00:00Z", "lastUpdateTime": "2026-09-01T10:00:00Z"}
    conditions = [
        {"type": f"Resources{type_}", "status": status, "reason": "R", "message": name, **times}
        for type_, status in (("Applied", "True"), ("Healthy", "False"), ("Progressing", "False"))
    ]
    made = {"apiVersion": "resources.gardener.cloud/v1alpha1", "kind": "ManagedResource"}
    body = made | {"metadata": {"name": name}, "spec": {"secretRefs": [{"name": "a"}], **spec}}
    await shoot.kube.create(MANAGED_RESOURCES, shoot.namespace, body)
    status = {"observedGeneration": 1, "conditions": conditions}
    await shoot.merge(MANAGED_RESOURCES, name, {"status": status}, part="status")
