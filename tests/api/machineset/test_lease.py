"""The Lease of a namespace is deleted, taken, or goes with its namespace, while windowbox is at work."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.kindworld import KindWorld
from tests.support.machines import MachineClient, deployment
from tests.support.rules import rule
from tests.support.running import eventually
from windowbox.models import machinekeys as keys
from windowbox.models.refs import LEASES, MACHINE_SETS, NAMESPACES

pytestmark = [
    pytest.mark.serves("machinedeployment", "machineset"),
    pytest.mark.asyncio(loop_scope="module"),
]

_NAME = "machine-controller-manager"


async def _take(client: MachineClient, by: str = "gardeners", seconds: int = 60, **metadata: Any) -> None:
    """Take the Lease, as another program does."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": by, "leaseDurationSeconds": seconds, "renewTime": now}
    await client.shoot.kube.create(
        LEASES, client.shoot.namespace, {"metadata": {"name": _NAME, **metadata}, "spec": spec}
    )


async def _until_left_alone(client: MachineClient, world: KindWorld) -> None:
    async def look() -> bool:
        return "NamespaceServedByOthers" in await client.events()

    await eventually(look)
    await world.quiet()


@rule("C15-R4")
async def test_a_deleted_lease_is_not_remembered(client: MachineClient, world: KindWorld) -> None:
    await client.complete()
    await client.shoot.delete(LEASES, _NAME)
    await _take(client)
    await client.scale(5)
    await _until_left_alone(client, world)
    assert len(await client.machines()) == 3


@pytest.mark.long  # the test above deletes a Lease, test_machines.py Machines
@rule("C15-R4")
async def test_a_deleted_namespace_loses_machines_and_lease(client: MachineClient, world: KindWorld) -> None:
    await client.complete()
    kube, namespace = client.shoot.kube, client.shoot.namespace
    await kube.delete(NAMESPACES, "", namespace)
    await client.shoot.until_gone(NAMESPACES, namespace)
    await kube.create(NAMESPACES, "", {"metadata": {"name": namespace}})
    await _take(client)
    await client.make(deployment(replicas=3))
    await _until_left_alone(client, world)
    assert await client.machines() == []


@rule("C15-R4", "C11-R3")
async def test_a_set_served_by_others_stays_frozen(client: MachineClient, world: KindWorld) -> None:
    await client.complete(1)
    [owner] = await client.sets()
    await client.shoot.delete(LEASES, _NAME)
    await _take(client)
    frozen = {"metadata": {"labels": {keys.FREEZE: "True"}}, "spec": {"minReadySeconds": 400}}
    await client.shoot.merge(MACHINE_SETS, owner.name, frozen)
    await client.change({"spec": {"minReadySeconds": 300}})
    await _until_left_alone(client, world)
    [owner] = await client.sets()
    assert owner.labels[keys.FREEZE] == "True"
    assert owner.spec["minReadySeconds"] == 400


async def test_ordinary_runs_read_no_lease_from_the_api(client: MachineClient, world: KindWorld) -> None:
    await client.complete(2)
    await world.quiet()
    audit = world.audit()
    await client.scale(4)
    await client.until_complete()
    await client.roll("big")
    await client.until(lambda one: one.status.get("updatedReplicas") == 4)
    assert [asked for asked in audit.requests() if asked.endswith("leases")] == []


async def test_a_lease_of_a_former_version_is_mirrored(client: MachineClient) -> None:
    await _take(client, "windowbox", 3600)
    await client.complete(1)
    found = await client.shoot.get(LEASES, _NAME)
    assert found
    assert found.labels == {"app.kubernetes.io/managed-by": "windowbox"}
