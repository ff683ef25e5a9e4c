"""Shoots of clouds whose machines are simulated, from the Infrastructure to nodes, and back."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.api.machine.machines import Machines
from tests.support import cloudshoots
from tests.support.cloudshoots import cloud_shoot, infrastructure
from tests.support.kindworld import KindWorld
from tests.support.machines import join, leave
from tests.support.machinesimulator import MachineSimulator
from tests.support.rules import rule
from tests.support.running import running
from windowbox.models import refs
from windowbox.models.objects import Object
from windowbox.settings.kindsettings import KindSettings

pytestmark = [
    pytest.mark.serves(
        "infrastructure",
        "worker",
        "machinedeployment",
        "machineset",
        "machine",
        kinds=KindSettings(clouds=cloudshoots.SETTINGS),
    ),
    pytest.mark.asyncio(loop_scope="module"),
]


@contextlib.asynccontextmanager
async def shoot_of(
    world: KindWorld, cloud: str, changes: dict[str, Any] | None = None
) -> AsyncIterator[Machines]:
    """A Shoot of a cloud with its Infrastructure and its Worker; `changes` of its pools."""
    shoot = await cloud_shoot(world, cloud)
    await infrastructure(shoot, cloud)
    simulator = MachineSimulator(world.kube, world.kube, f"infra-{shoot.namespace}")
    made = Machines(world, shoot, simulator)
    await join(shoot)
    await cloudshoots.worker(shoot, cloud, changes)
    async with running(simulator.run()):
        yield made
        await shoot.delete(refs.WORKERS, "cloud")
        await shoot.until_gone(refs.WORKERS, "cloud")
        await shoot.delete(refs.INFRASTRUCTURES, "cloud")
        await shoot.until_gone(refs.INFRASTRUCTURES, "cloud")
        await leave(shoot)


async def machines_of(made: Machines) -> list[Object]:
    page = await made.world.kube.page(refs.MACHINES._replace(within=made.shoot.namespace))
    return [Object(raw) for raw in page.items]


@rule("ALL-Z7", "ALL-Z8")
async def test_a_machine_of_aws_becomes_a_node_of_its_zone(world: KindWorld) -> None:
    async with shoot_of(world, "aws") as made:
        await made.shoot.until_ready(refs.WORKERS, "cloud")
        for machine in await machines_of(made):
            zone = "a" if "-z1-" in machine.name else "b"
            assert machine.spec["providerID"].startswith("aws:///eu-central-1/i-")
            node = await made.until_node(
                f"machine-{machine.name}", lambda one: bool(one and one.spec.get("providerID"))
            )
            assert node.spec["providerID"] == machine.spec["providerID"]
            assert node.labels["node.kubernetes.io/instance-type"] == "m5.large"
            assert node.labels["topology.kubernetes.io/region"] == "eu-central-1"
            for label in ("topology.kubernetes.io/zone", "topology.ebs.csi.aws.com/zone"):
                assert node.labels[label] == f"eu-central-1{zone}"
            pod = await made.pod(machine.name)
            [container] = pod.spec["containers"]
            assert container["image"] == cloudshoots.IMAGE
            assert container["resources"] == {
                "requests": {"cpu": "0", "memory": "0"},
                "limits": {"cpu": "2", "memory": "8Gi"},
            }
            pool = f"shoot-machine-pods-{made.shoot.namespace}.eu-central-1{zone}-ipv4"
            assert pod.annotations["cni.projectcalico.org/ipv4pools"] == f'["{pool}"]'
            assert "nodeSelector" not in pod.spec or not pod.spec["nodeSelector"]
