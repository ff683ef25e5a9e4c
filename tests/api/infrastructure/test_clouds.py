"""Infrastructures of clouds: their status, the networks of their machines, and the inventory."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from bus import streams
from bus.transport.buckets import Bucket
from bus.transport.connection import connected
from clouds import table
from clouds.frame import inventory
from tests.support import cloudshoots
from tests.support.cloudshoots import cloud_shoot, infrastructure
from tests.support.kindworld import KindWorld
from tests.support.rules import rule
from windowbox.models.refs import INFRASTRUCTURES, NETWORK_POLICIES
from windowbox.settings.bussettings import Access
from windowbox.settings.kindsettings import KindSettings

pytestmark = [
    pytest.mark.serves("infrastructure", kinds=KindSettings(clouds=cloudshoots.SETTINGS)),
    pytest.mark.asyncio(loop_scope="module"),
]

CLOUDS = ("aws",)


async def stored(world: KindWorld, *key: str) -> dict[str, Any] | None:
    async with connected(Access(world.nats.url, name="test")) as bus:
        value = (await Bucket(bus, streams.CLOUDS).get(inventory.key(*key))).value
    return None if value is None else json.loads(value)


async def add(world: KindWorld, account: str, one: dict[str, Any]) -> None:
    """An object that exists without a Shoot."""
    async with connected(Access(world.nats.url, name="test")) as bus:
        key = inventory.key("existing", account, one["kind"], one["id"])
        await Bucket(bus, streams.CLOUDS).put(key, json.dumps(one).encode(), None)


@pytest.mark.parametrize("cloud", CLOUDS)
async def test_the_example_has_status_pools_policies_and_inventory(world: KindWorld, cloud: str) -> None:
    shoot = await cloud_shoot(world, cloud)
    await infrastructure(shoot, cloud)
    found = await shoot.until_ready(INFRASTRUCTURES, "cloud")

    assert found.status["providerStatus"]["kind"] == "InfrastructureStatus"
    assert found.status["state"]["kind"] == "InfrastructureState"
    there = await stored(world, "shoots", shoot.namespace)
    assert there
    assert there["objects"]
    home = world.client(f"infra-{shoot.namespace}")
    for policy in ("provider-local-deny-all", "security-group"):
        assert await home.get(NETWORK_POLICIES, policy), policy
    await shoot.delete(INFRASTRUCTURES, "cloud")
    await shoot.until_gone(INFRASTRUCTURES, "cloud")
    assert await stored(world, "shoots", shoot.namespace) is None


@rule("AWS-R4")
async def test_an_elastic_ip_serves_one_shoot_until_that_is_gone(world: KindWorld) -> None:
    first, second = [await cloud_shoot(world, "aws") for _ in range(2)]
    ip = {"networks/zones/0/elasticIPAllocationID": "eipalloc-0123"}
    await infrastructure(first, "aws", ip)
    failed = await first.until_failed(INFRASTRUCTURES, "cloud")
    assert "networks.zones[0].elasticIPAllocationID: Not found" in failed.status["lastError"]["description"]

    account = _account()
    await add(
        world,
        account,
        {"kind": "elastic-ip", "id": "eipalloc-0123", "properties": {"address": "198.51.100.7"}},
    )
    await first.ask(INFRASTRUCTURES, "cloud")
    ready = await first.until_ready(INFRASTRUCTURES, "cloud")
    assert "198.51.100.7/32" in ready.status["egressCIDRs"]

    await infrastructure(second, "aws", ip)
    failed = await second.until_failed(INFRASTRUCTURES, "cloud")
    assert f"used by {first.namespace}" in failed.status["lastError"]["description"]
    await first.delete(INFRASTRUCTURES, "cloud")
    await first.until_gone(INFRASTRUCTURES, "cloud")
    await second.ask(INFRASTRUCTURES, "cloud")
    await second.until_ready(INFRASTRUCTURES, "cloud")


def _account() -> str:
    cloud = table.cloud("aws")
    assert cloud.account
    data = {name: base64.b64decode(one) for name, one in cloudshoots.example("aws")["Secret"]["data"].items()}
    return inventory.account_name("aws", cloud.account(data).identity)
