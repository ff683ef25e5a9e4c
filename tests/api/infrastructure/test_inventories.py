"""Inventories of clouds beside runs: calls that fail, and objects that no run has removed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bus.clusters.clusters import Clusters
from bus.clusters.registry import Registry
from bus.transport.connection import Bus, connected
from clouds import table
from clouds.frame.inventory import CloudObject
from clouds.frame.operator.faults import SetFault
from commands.clouds import inventories
from tests.support import cloudshoots
from tests.support.cloudinventory import account, add, fail, stored, write
from tests.support.cloudshoots import cloud_shoot, infrastructure
from tests.support.kindworld import KindWorld, ready, world_of
from tests.support.running import eventually
from windowbox.errors import Refused
from windowbox.models.clouds import CLOUD_TYPES
from windowbox.models.extensions import spelled
from windowbox.models.refs import INFRASTRUCTURES
from windowbox.settings.bussettings import Access
from windowbox.settings.kindsettings import KindSettings
from workers import replay
from workers.core.cloudaccounts import CloudAccounts
from workers.core.owned.cloudorphans import CloudOrphans

pytestmark = [
    pytest.mark.serves("infrastructure", kinds=KindSettings(clouds=cloudshoots.SETTINGS)),
    pytest.mark.asyncio(loop_scope="module"),
]

EXCLUSIVE = {"networks/zones/0/elasticIPAllocationID": "eipalloc-1"}


async def test_a_fault_hits_as_many_calls_as_asked_and_nothing_is_lost(world: KindWorld) -> None:
    shoot, other = [await cloud_shoot(world, "aws") for _ in range(2)]
    since = datetime.now(UTC)
    await fail(world, "aws", SetFault("quota", on="infrastructure", shoot=shoot.namespace, times=3))
    await infrastructure(shoot, "aws")
    await infrastructure(other, "aws")
    for one in (shoot, other):
        assert "lastError" not in (await one.until_ready(INFRASTRUCTURES, "cloud")).status
    recording = await world.recorded(since, "infrastructure")
    calls = [call for run in recording.runs for call in run.calls]
    met = [call for call in calls if call.door == "cloud" and call.error]
    assert [call.request["shoot"] for call in met] == [shoot.namespace] * 3
    errors = [call.request["patch"].get("lastError") for call in calls if call.door == "report"]
    codes = {tuple(one["codes"]) for one in errors if one}
    assert codes == {("ERR_INFRA_QUOTA_EXCEEDED",)}
    assert await stored(world, "faults", account("aws")) is None
    assert (await replay.replayed(recording)).differences == []


async def test_a_fault_of_some_time_ends_by_itself(world: KindWorld) -> None:
    shoot = await cloud_shoot(world, "aws")
    until = spelled(datetime.now(UTC) + timedelta(seconds=2))
    await fail(world, "aws", SetFault("depleted", shoot=shoot.namespace, until=until))
    await infrastructure(shoot, "aws")
    failed = await shoot.until_failed(INFRASTRUCTURES, "cloud")
    assert failed.status["lastError"]["codes"] == ["ERR_INFRA_RESOURCES_DEPLETED"]
    assert "played by `windowbox cloud fail`" in failed.status["lastError"]["description"]
    await shoot.until_ready(INFRASTRUCTURES, "cloud")
    assert await stored(world, "faults", account("aws")) is None


@pytest.mark.parametrize("cloud", CLOUD_TYPES)
async def test_each_cloud_fails_with_its_own_code(world: KindWorld, cloud: str) -> None:
    shoot = await cloud_shoot(world, cloud)
    await fail(world, cloud, SetFault("depleted", shoot=shoot.namespace))
    await infrastructure(shoot, cloud)
    failed = await shoot.until_failed(INFRASTRUCTURES, "cloud")
    fault = table.cloud(cloud).faults["depleted"]
    assert tuple(failed.status["lastError"].get("codes", ())) == fault.codes
    assert fault.text in failed.status["lastError"]["description"]
    await fail(world, cloud)
    await shoot.until_ready(INFRASTRUCTURES, "cloud")


async def test_a_throttled_object_waits_until_somebody_ends_that(world: KindWorld) -> None:
    shoot = await cloud_shoot(world, "gcp")
    await fail(world, "gcp", SetFault("throttling", shoot=shoot.namespace))
    await infrastructure(shoot, "gcp")
    failed = await shoot.until_failed(INFRASTRUCTURES, "cloud")
    assert failed.status["lastError"]["codes"] == ["ERR_INFRA_RATE_LIMITS_EXCEEDED"]
    async with connected(Access(world.nats.url, name="operator")) as bus:
        assert await inventories.heal(bus, account("gcp"), "throttling") == 1
        assert await inventories.retry(bus) == 1
    await shoot.until(INFRASTRUCTURES, "cloud", ready, patience=25)  # by itself it waits for 30 s


async def test_a_deletion_that_meets_a_fault_loses_nothing(world: KindWorld) -> None:
    shoot = await cloud_shoot(world, "openstack")
    await infrastructure(shoot, "openstack")
    await shoot.until_ready(INFRASTRUCTURES, "cloud")
    await fail(world, "openstack", SetFault("dependency", shoot=shoot.namespace))
    await shoot.delete(INFRASTRUCTURES, "cloud")
    failed = await shoot.until_failed(INFRASTRUCTURES, "cloud")
    assert failed.status["lastError"]["codes"] == ["ERR_INFRA_DEPENDENCIES"]
    assert await stored(world, "shoots", shoot.namespace)
    await fail(world, "openstack")
    await shoot.until_gone(INFRASTRUCTURES, "cloud")
    assert await stored(world, "shoots", shoot.namespace) is None


async def test_a_shoot_names_the_vpc_of_another_only_if_that_is_shared(world: KindWorld) -> None:
    owner, other = [await cloud_shoot(world, "aws") for _ in range(2)]
    await infrastructure(owner, "aws")
    made = await owner.until_ready(INFRASTRUCTURES, "cloud")
    vpc = made.status["providerStatus"]["vpc"]["id"]
    await infrastructure(other, "aws", {"networks/vpc": {"id": vpc}})
    failed = await other.until_failed(INFRASTRUCTURES, "cloud")
    said = f"networks.vpc.id: Not found: '{vpc}': the account has no such vpc: correct the field, or add it"
    assert said in failed.status["lastError"]["description"]

    async with connected(Access(world.nats.url, name="operator")) as bus:
        with pytest.raises(Refused, match=f"belongs to Shoot {owner.namespace}: with --shared"):
            await inventories.add(bus, account("aws"), CloudObject("vpc", vpc))
        await inventories.add(bus, account("aws"), CloudObject("vpc", vpc, shared=True))
    await other.ask(INFRASTRUCTURES, "cloud")
    made = await other.until_ready(INFRASTRUCTURES, "cloud")
    assert made.status["providerStatus"]["vpc"]["id"] == vpc


async def test_what_no_run_has_removed_is_removed_and_released(world: KindWorld) -> None:
    await add(world, account("aws"), {"kind": "elastic-ip", "id": "eipalloc-1"})
    gone, there, moved = [await cloud_shoot(world, "aws") for _ in range(3)]
    for shoot, changes in ((gone, EXCLUSIVE), (there, {}), (moved, {})):
        await infrastructure(shoot, "aws", changes)
        await shoot.until_ready(INFRASTRUCTURES, "cloud")
    before = [await stored(world, "shoots", shoot.namespace) for shoot in (gone, there, moved)]
    claimed = await stored(world, "existing", account("aws"), "elastic-ip", "eipalloc-1")
    assert claimed
    assert claimed["used_by"] == gone.namespace
    for shoot in (gone, moved):
        await shoot.delete(INFRASTRUCTURES, "cloud")
        await shoot.until_gone(INFRASTRUCTURES, "cloud")
    # The bus is rolled back to what it was; another seed takes over the last Shoot.
    await write(world, before[0], "shoots", gone.namespace)
    await add(world, account("aws"), claimed)
    reserved = {"kind": "reservation", "id": "r-1"}
    await add(world, account("aws"), reserved | {"used_by": f"{gone.namespace}-x/machine"})
    left = {**(before[2] or {}), "made_by": None}
    await write(world, left, "shoots", moved.namespace)

    async with searching(world):

        async def removed() -> bool:
            return await stored(world, "shoots", gone.namespace) is None

        await eventually(removed)
        await eventually(lambda: free_again(world, {"kind": "elastic-ip", "id": "eipalloc-1"}))
        await eventually(lambda: free_again(world, reserved))
    assert await stored(world, "shoots", there.namespace) == before[1]
    assert await stored(world, "shoots", moved.namespace) == left
    await write(world, None, "shoots", moved.namespace)


async def test_what_the_bus_has_lost_is_made_again(world: KindWorld) -> None:
    shoot = await cloud_shoot(world, "aws")
    await infrastructure(shoot, "aws")
    await shoot.until_ready(INFRASTRUCTURES, "cloud")
    before = await stored(world, "shoots", shoot.namespace)
    await write(world, None, "shoots", shoot.namespace)
    async with searching(world):

        async def found() -> object:
            return await stored(world, "shoots", shoot.namespace)

        assert await eventually(found) == before


async def test_a_migrated_infrastructure_leaves_its_objects_to_the_next_seed(world: KindWorld) -> None:
    await add(world, account("aws"), {"kind": "elastic-ip", "id": "eipalloc-1"})
    shoot = await cloud_shoot(world, "aws")
    await infrastructure(shoot, "aws", EXCLUSIVE)
    await shoot.until_ready(INFRASTRUCTURES, "cloud")
    before = await stored(world, "shoots", shoot.namespace)
    assert before
    await shoot.ask(INFRASTRUCTURES, "cloud", "migrate")
    await shoot.until_ready(INFRASTRUCTURES, "cloud")
    assert await stored(world, "shoots", shoot.namespace) == {**before, "made_by": None}
    await shoot.delete(INFRASTRUCTURES, "cloud")
    await shoot.until_gone(INFRASTRUCTURES, "cloud")
    claimed = await stored(world, "existing", account("aws"), "elastic-ip", "eipalloc-1")
    assert claimed
    assert claimed["used_by"] == shoot.namespace


async def free_again(world: KindWorld, one: dict[str, str]) -> bool:
    return await stored(world, "existing", account("aws"), one["kind"], one["id"]) == one


def searching(world: KindWorld) -> Any:
    """A worker that looks for orphans in inventories without a pause."""

    async def assembled(bus: Bus, opened: Clusters, registry: Registry) -> list[Any]:
        return [CloudOrphans(bus, opened, CloudAccounts(bus, opened), grace=0).run()]

    return world_of(replace(world, tasks=[]), "worker", assembled)  # the world does not wait for its end
