"""The marks of nodes while their machines roll."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from bus.clusters.registry import Member, Registry
from bus.transport.connection import connected
from tests.support.kindworld import KindWorld
from tests.support.machines import MachineClient, deployment, machine_client, rolled
from tests.support.rules import rule
from windowbox.models import machinekeys as keys
from windowbox.models.objects import Object
from windowbox.models.refs import NODES, SecretKey
from windowbox.settings.bussettings import Access

pytestmark = pytest.mark.serves("machinedeployment", "machineset")


async def join(client: MachineClient) -> None:
    """Have the nodes of the Shoot, which are in the same cluster, watched as another cluster's."""
    world, namespace = client.shoot.world, client.shoot.namespace
    await client.shoot.secret("gardener", kubeconfig=world.kubeconfig("target"))
    async with connected(Access(world.nats.url, name="join")) as bus:
        secret = SecretKey(namespace=namespace, name="gardener")
        await Registry(bus).join(Member(id=namespace, secret=secret, kinds=(NODES.id,)))


async def until_nodes(client: MachineClient, names: set[str], holds: Callable[[Object], bool]) -> None:
    for name in names:
        await client.shoot.until(NODES, name, lambda one: one is not None and holds(one))


def tainted(node: Object) -> bool:
    return any(one["key"] == keys.PREFER_NO_SCHEDULE for one in node.spec.get("taints") or ())


@rule("C5")
async def test_nodes_are_marked_while_machines_roll(world: KindWorld) -> None:
    async with machine_client(world, nodes=world.kube) as client:
        client.driver.joins = asyncio.Semaphore(2)
        await join(client)
        await client.make(deployment(replicas=2))
        await client.until_complete()
        old = {f"machine-{one.name}" for one in await client.machines()}
        await client.roll("big")
        await until_nodes(client, old, tainted)
        await until_nodes(client, old, lambda one: keys.SCALE_DOWN_DISABLED_BY_US in one.annotations)
        client.driver.release(joined=2)
        await client.until(rolled)
        new = {f"machine-{one.name}" for one in await client.machines()}
        assert not new & old
        await until_nodes(client, new, lambda one: keys.SCALE_DOWN_DISABLED not in one.annotations)
        await until_nodes(client, new, lambda one: not tainted(one))
