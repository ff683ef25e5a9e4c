"""Infrastructures, from the API to what is made of them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.kinds.kindworld import CLOUDPROVIDER, Client, KindWorld, kind_world
from tests.natsserver import NatsServer
from tests.rules import rule
from tests.servers import ControlPlane
from windowbox.models.refs import INFRASTRUCTURES, IP_POOLS, NAMESPACES, NETWORK_POLICIES


@pytest_asyncio.fixture
async def world(plane: ControlPlane, nats: NatsServer) -> AsyncIterator[KindWorld]:
    async with kind_world(plane, nats, "infrastructure") as made:
        yield made


async def infrastructure(shoot: Client) -> None:
    secret = {"name": CLOUDPROVIDER, "namespace": shoot.namespace}
    await shoot.create(INFRASTRUCTURES, "local", {"region": "local", "secretRef": secret})


@rule("I-1", "I-2")
async def test_an_infrastructure_comes_and_goes(world: KindWorld) -> None:
    shoot = await world.shoot()
    await infrastructure(shoot)
    found = await shoot.until_ready(INFRASTRUCTURES, "local")
    assert found.status["networking"] == {
        "nodes": ["10.0.0.0/16"],
        "pods": ["10.3.0.0/16"],
        "services": ["10.4.0.0/16"],
    }
    assert found.status["egressCIDRs"] == ["10.0.0.0/16"]
    there = world.client(f"infra-{shoot.namespace}")
    assert await there.get(NETWORK_POLICIES, "provider-local-deny-all")
    pool = f"shoot-machine-pods-{shoot.namespace}-ipv4"
    assert await there.get(IP_POOLS, pool)
    await shoot.delete(INFRASTRUCTURES, "local")
    await shoot.until_gone(INFRASTRUCTURES, "local")
    assert await there.get(NAMESPACES, there.namespace) is None
    assert await there.get(IP_POOLS, pool) is None


async def test_what_was_deleted_by_hand_comes_back(world: KindWorld) -> None:
    shoot = await world.shoot()
    await infrastructure(shoot)
    await shoot.until_ready(INFRASTRUCTURES, "local")
    there = world.client(f"infra-{shoot.namespace}")
    await world.quiet()
    await there.delete(NETWORK_POLICIES, "provider-local-deny-all")
    await there.until(NETWORK_POLICIES, "provider-local-deny-all", lambda found: found is not None)
