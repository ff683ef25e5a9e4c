"""The marks of nodes while their machines roll."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.support.kindworld import KindWorld
from tests.support.machines import MachineClient, join, machine_client, rolled
from tests.support.rules import rule
from windowbox.models import machinekeys as keys
from windowbox.models.objects import Object
from windowbox.models.refs import NODES

pytestmark = [
    pytest.mark.serves("machinedeployment", "machineset"),
    pytest.mark.asyncio(loop_scope="module"),
]


async def until_nodes(client: MachineClient, names: set[str], holds: Callable[[Object], bool]) -> None:
    for name in names:
        await client.shoot.until(NODES, name, lambda one: one is not None and holds(one))


def tainted(node: Object) -> bool:
    return any(one["key"] == keys.PREFER_NO_SCHEDULE for one in node.spec.get("taints") or ())


@rule("C5")
async def test_nodes_are_marked_while_machines_roll(world: KindWorld) -> None:
    async with machine_client(world, nodes=world.kube) as client:
        client.driver.joins = asyncio.Semaphore(2)
        await join(client.shoot)
        await client.complete(2)
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
