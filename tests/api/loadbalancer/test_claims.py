"""A tenant who writes addresses of others, and free ones, into the status of its own Service."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.balancerworld import BalancerWorld, address, always, balancer_world, greeting, played_node
from tests.support.natsserver import NatsServer
from tests.support.running import eventually
from tests.support.servers import ControlPlane
from windowbox.models.refs import SERVICES
from workers.loadbalancer.loadbalancerpool import BalancerParts

PLACE = f"127.67.{os.getpid() % 250}"
NODE, NODE_PORT = f"{PLACE}.1", 31067
RANGE = [f"{PLACE}.{n}" for n in range(16, 24)]


@pytest_asyncio.fixture
async def world(
    control_plane: ControlPlane, nats: NatsServer, tmp_path: Path
) -> AsyncIterator[BalancerWorld]:
    ranges = [{"prefixes": [f"{PLACE}.16/29"]}]
    async with (
        balancer_world(control_plane, nats, tmp_path, "claims", ranges=ranges) as made,
        played_node(NODE, NODE_PORT, "hello"),
    ):
        await made.node("one", NODE)
        yield made


@pytest.mark.parametrize("wiped", [False, True], ids=["another-owner", "the-bus-is-wiped"])
async def test_nobody_gets_what_its_status_claims_while_envoy_serves_another(
    world: BalancerWorld, wiped: bool
) -> None:
    async with world.worker():
        await world.service("victim", node_port=NODE_PORT)
        where = await world.served("victim")
        await world.service("thief")
        await world.served("thief")

    async def serves() -> bool:
        return await greeting(where) == "hello"

    async def forget_and_recover() -> None:
        ingress = [{"ip": where, "ipMode": "Proxy"}, *({"ip": one} for one in RANGE if one != where)]
        status = {"status": {"loadBalancer": {"ingress": ingress}}}
        await world.kube.merge(SERVICES, world.namespace, "thief", status, part="status")
        if wiped:
            world.nats.wipe()
            world.nats.start()
        async with world.worker() as parts:
            await world.until("thief", lambda found: address(found) not in ("", where))
            await eventually(lambda: owned(parts))
            held = {
                name: [a for a, h in parts.store.holders() if h.name == name] for name in ("victim", "thief")
            }
            assert held["victim"] == [where]
            assert len(held["thief"]) == 1
            await world.service("more")
            assert await world.served("more") not in (where, "")

    await always(serves, forget_and_recover())


async def test_the_bus_is_wiped_while_all_runs(world: BalancerWorld) -> None:
    async with world.worker() as parts:
        await world.service("victim", node_port=NODE_PORT)
        where = await world.served("victim")
        await world.service("thief")
        own = await world.served("thief")

        async def serves() -> bool:
            return await greeting(where) == "hello"

        async def forget_and_recover() -> None:
            world.nats.wipe()
            status = {"status": {"loadBalancer": {"ingress": [{"ip": one} for one in (where, *RANGE)]}}}
            await world.kube.merge(SERVICES, world.namespace, "thief", status, part="status")
            world.nats.start()
            await world.until("thief", lambda found: address(found) == own)
            await eventually(lambda: owned(parts))

        await always(serves, forget_and_recover())
        assert {h.name: a for a, h in parts.store.holders()} == {"victim": where, "thief": own}


async def owned(parts: BalancerParts) -> bool:
    held = {holder.name for _, holder in parts.store.holders()}
    return parts.store.is_complete() and held >= {"victim", "thief"}
