"""Infrastructures of clouds: their status, the networks of their machines, and the inventory."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clouds import table
from tests.api.infrastructure.infrastructures import behind, says
from tests.support import cloudshoots
from tests.support.cases import cases
from tests.support.cloudinventory import account, add, stored
from tests.support.cloudshoots import cloud_shoot, infrastructure
from tests.support.kindworld import CLOUDPROVIDER, KindWorld
from tests.support.rules import rule
from windowbox.models.refs import INFRASTRUCTURES, IP_POOLS, NAMESPACES, NETWORK_POLICIES
from windowbox.settings.kindsettings import KindSettings

pytestmark = [
    pytest.mark.serves("infrastructure", kinds=KindSettings(clouds=cloudshoots.SETTINGS)),
    pytest.mark.asyncio(loop_scope="module"),
]

CLOUDS = table.TYPES
STATES = {"alicloud": "FlowState", "equinixmetal": None}
"""Kinds of states that are no InfrastructureState."""


@pytest.mark.parametrize("cloud", CLOUDS)
async def test_the_example_has_status_pools_policies_and_inventory(world: KindWorld, cloud: str) -> None:
    shoot = await cloud_shoot(world, cloud)
    await infrastructure(shoot, cloud)
    found = await shoot.until_ready(INFRASTRUCTURES, "cloud")

    assert found.status["providerStatus"]["kind"] == "InfrastructureStatus"
    assert found.status["state"].get("kind") == STATES.get(cloud, "InfrastructureState")
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

    await add(
        world,
        account("aws"),
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


@rule("ALI-R3", "ALL-Z6")
async def test_an_address_is_replaced_and_others_stay(world: KindWorld) -> None:
    shoot = await cloud_shoot(world, "alicloud")
    await infrastructure(shoot, "alicloud")
    first = await shoot.until_ready(INFRASTRUCTURES, "cloud")
    [image] = first.status["providerStatus"]["machineImages"]
    assert image["id"] == "m-gw8gardenlinux15921"
    zones = cloudshoots.example("alicloud")["Shoot"]["spec"]["provider"]["infrastructureConfig"]["networks"][
        "zones"
    ]
    own = [{**zones[0], "natGateway": {"eipAllocationID": "eip-mine"}}, zones[1]]
    await add(
        world,
        account("alicloud"),
        {"kind": "eip", "id": "eip-mine", "properties": {"address": "198.51.100.8"}},
    )

    found = [first.status["egressCIDRs"]]
    for given in (own, zones):
        await shoot.ask(INFRASTRUCTURES, "cloud", spec={"providerConfig": {"networks": {"zones": given}}})
        found.append((await shoot.until_ready(INFRASTRUCTURES, "cloud")).status["egressCIDRs"])

    assert found[1] == ["198.51.100.8/32", found[0][1]]
    assert found[2][0] not in (found[0][0], found[1][0])
    assert found[2][1] == found[0][1]


@rule("ALL-F5")
async def test_an_infrastructure_that_never_had_credentials_can_be_deleted(world: KindWorld) -> None:
    shoot = await cloud_shoot(world, "gcp")
    await shoot.secret(CLOUDPROVIDER, other=b"data")
    await infrastructure(shoot, "gcp")
    failed = await shoot.until_failed(INFRASTRUCTURES, "cloud")
    assert "serviceaccount.json is missing" in failed.status["lastError"]["description"]
    assert failed.status["lastError"]["codes"] == ["ERR_INFRA_UNAUTHENTICATED"]

    await shoot.delete(INFRASTRUCTURES, "cloud")
    await shoot.until_gone(INFRASTRUCTURES, "cloud")


@rule("AZU-U5", "ALL-F4")
async def test_a_zone_takes_over_the_subnet_of_all_and_keeps_it_on_another_seed(world: KindWorld) -> None:
    shoot = await cloud_shoot(world, "azure")
    zones = cloudshoots.example("azure")["Shoot"]["spec"]["provider"]["infrastructureConfig"]["networks"][
        "zones"
    ]
    workers = zones[0]["cidr"]
    await infrastructure(shoot, "azure", {"networks/zones": None, "networks/workers": workers})
    await shoot.until_ready(INFRASTRUCTURES, "cloud")
    networks = {"workers": None, "zones": zones}
    await shoot.ask(INFRASTRUCTURES, "cloud", spec={"providerConfig": {"networks": networks}})
    changed = await shoot.until_ready(INFRASTRUCTURES, "cloud")

    subnets = changed.status["providerStatus"]["networks"]["subnets"]
    names = [(one["name"], one.get("migrated", False)) for one in subnets]
    assert names == [(f"{shoot.namespace}-nodes", True), (f"{shoot.namespace}-nodes-z2", False)]
    pools = [f"shoot-machine-pods-{shoot.namespace}{zone}-ipv4" for zone in ("", ".1", ".2")]
    there = [await behind(shoot).get(IP_POOLS, name) for name in pools]
    assert [one and one.spec["cidr"] for one in there] == [None, *(one["cidr"] for one in zones)]
    assert f"{shoot.namespace}-nodes/cidr" not in json.dumps(
        changed.status["state"]
    )  # nothing former is left
    await shoot.ask(INFRASTRUCTURES, "cloud", "migrate")
    await shoot.until(INFRASTRUCTURES, "cloud", says("Succeeded", "Successfully migrated Infrastructure"))
    await shoot.ask(INFRASTRUCTURES, "cloud", "restore")
    done = says("Succeeded", "Successfully restored Infrastructure")
    restored = await shoot.until(INFRASTRUCTURES, "cloud", done)
    assert restored
    for field in ("providerStatus", "state", "egressCIDRs"):
        assert restored.status[field] == changed.status[field], field


@cases(
    "cloud changes error",
    (
        "references",
        "gcp",
        {"networks/cloudNAT": {"natIPNames": [{"name": f"ip-{i}"} for i in range(101)]}},
        "spec.providerConfig names 101 existing objects, more than 100: name fewer",
    ),
    (
        "one-twice",
        "gcp",
        {"networks/cloudNAT": {"natIPNames": [{"name": "ip"}, {"name": "ip"}]}},
        'networks.cloudNAT.natIPNames[1].name: Duplicate value: "ip"',
    ),
    (
        "objects",
        "aws",
        {"networks/vpc/gatewayEndpoints": [f"service{i}" for i in range(1_001)]},
        "objects, more than 1000: ask for fewer zones",
    ),
    (
        "zones",
        "aws",
        {"networks/zones": [{"name": f"zone-{i}"} for i in range(101)]},
        "networks.zones: Too many: 101: must have at most 100 items",
    ),
)
async def test_a_cloud_that_cannot_be_is_refused_before_anything_is_made(
    world: KindWorld, cloud: str, changes: dict[str, Any], error: str
) -> None:
    shoot = await cloud_shoot(world, cloud)
    await infrastructure(shoot, cloud, changes)
    failed = await shoot.until_failed(INFRASTRUCTURES, "cloud")

    assert error in failed.status["lastError"]["description"]
    assert await world.client("").get(NAMESPACES, f"infra-{shoot.namespace}") is None
    assert await stored(world, "shoots", shoot.namespace) is None
