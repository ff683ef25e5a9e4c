"""Nodes of a hibernated Shoot: they go with their machines, or as soon as the Shoot is awake again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio

from bus.clusters.clusters import Clusters
from bus.clusters.registry import Registry
from bus.transport.connection import Bus
from tests.api.machine.machines import Machines, machines
from tests.api.machine.test_machine_deletion import ALL_PODS, guest
from tests.support.kindworld import Client, kind_world, world_of
from tests.support.natsserver import NatsServer
from tests.support.rules import rule
from tests.support.running import eventually
from tests.support.servers import ControlPlane
from windowbox.models.refs import MACHINES, NAMESPACES, NODES
from windowbox.settings.clustersettings import JoinSettings
from workers.kinds.membership.clusterjoining import Joining

pytestmark = pytest.mark.serves("machine")


@dataclass
class Sleeping:
    """The machines of a Shoot without a Deployment of its API server, and who takes part."""

    made: Machines
    registry: Registry
    joined: list[Client] = field(default_factory=list)

    async def join(self, shoot: Client) -> None:
        """Have the cluster of the Shoot take part."""
        await shoot.secret("gardener", kubeconfig=shoot.world.kubeconfig("target"))
        marks = {
            "cluster.windowbox/kubeconfig": "gardener",
            "cluster.windowbox/machines": f"infra-{shoot.namespace}",
        }
        await shoot.kube.merge(NAMESPACES, "", shoot.namespace, {"metadata": {"annotations": marks}})
        self.joined.append(shoot)

    async def wake_all(self) -> None:
        """All tests share the API server: no Shoot of this one may take part in a later one's windowbox."""

        async def awake() -> bool:
            return not self.registry.asleep()

        for shoot in self.joined:
            await shoot.cluster()  # machines that are left end with their nodes
        await eventually(awake)
        for shoot in self.joined:
            marks = {"cluster.windowbox/kubeconfig": None}
            await shoot.kube.merge(NAMESPACES, "", shoot.namespace, {"metadata": {"annotations": marks}})

    async def hibernate(self, shoot: Client, *, complete: bool) -> None:
        """What gardenlet writes before machines end, and when all has ended."""
        await shoot.cluster(spec={"hibernation": {"enabled": True}}, status={"isHibernated": complete})

    async def until_asleep(self, shoot: Client) -> None:
        async def asleep() -> bool:
            return shoot.namespace in self.registry.asleep()

        await eventually(asleep)

    async def end(self, machine: str) -> None:
        """As a Worker ends the machines of a Shoot that is to be hibernated."""
        forced = {"metadata": {"labels": {"force-deletion": "True"}}}
        await self.made.shoot.merge(MACHINES, machine, forced)
        await self.made.delete(machine)
        await self.made.shoot.until_gone(MACHINES, machine)

    async def node_of(self, machine: str) -> Any:
        return await self.made.world.kube.find(NODES, "", f"machine-{machine}")

    async def pod(self, name: str) -> Any:
        return await self.made.world.kube.find(ALL_PODS, self.made.shoot.namespace, name)


@pytest_asyncio.fixture
async def sleeping(plane: ControlPlane, nats: NatsServer) -> AsyncIterator[Sleeping]:
    registries: list[Registry] = []

    async def joining(bus: Bus, opened: Clusters, registry: Registry) -> list[Any]:
        registries.append(registry)
        return [Joining(bus, registry, JoinSettings()).run()]

    async with (
        kind_world(plane, nats, "machine") as world,
        world_of(world, "worker", joining),
        machines(world, joined=False) as made,
    ):
        found = Sleeping(made, registries[0])
        await found.join(made.shoot)
        yield found
        await found.wake_all()


@rule("C-7", "B12-R1", "B12-R7")
async def test_a_shoot_is_awake_until_its_machines_have_ended(sleeping: Sleeping) -> None:
    made = sleeping.made
    await made.machine("ends")
    await made.until("ends", "Running")
    await asyncio.gather(*(guest(made, f"guest-{number}", "machine-ends") for number in range(60)))
    other = await made.world.shoot()
    await sleeping.join(other)
    await sleeping.hibernate(made.shoot, complete=False)
    await sleeping.hibernate(other, complete=True)
    await sleeping.until_asleep(other)  # by then the first has been looked at, too
    assert made.shoot.namespace not in sleeping.registry.asleep()
    await sleeping.end("ends")
    assert await sleeping.node_of("ends") is None
    assert [await sleeping.pod(f"guest-{number}") for number in range(60)] == [None] * 60
    await sleeping.hibernate(made.shoot, complete=True)
    await sleeping.until_asleep(made.shoot)


@rule("B13-R3", "C-7")
async def test_nodes_left_by_a_hibernation_go_after_waking(sleeping: Sleeping) -> None:
    made = sleeping.made
    for name in ("left", "stays"):
        await made.machine(name)
        await made.until(name, "Running")
        await guest(made, f"guest-of-{name}", f"machine-{name}")
    await sleeping.hibernate(made.shoot, complete=True)
    await sleeping.until_asleep(made.shoot)
    await sleeping.end("left")  # nobody can reach the Shoot
    assert await sleeping.node_of("left")
    assert await sleeping.pod("guest-of-left")
    await made.shoot.cluster()
    await made.shoot.until_gone(NODES, "machine-left")
    assert await sleeping.pod("guest-of-left") is None
    await made.world.quiet()
    assert await sleeping.node_of("stays")
    assert await sleeping.pod("guest-of-stays")
