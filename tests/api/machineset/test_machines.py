"""From a MachineDeployment to Machines, on a real API server with a simulated driver."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support import traces
from tests.support.machines import MachineClient, conditions, deployment, rolled
from tests.support.rules import rule
from tests.support.running import eventually
from windowbox.models import machinekeys as keys
from windowbox.models.refs import MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES, WORKERS, Resource

pytestmark = [
    pytest.mark.serves("machinedeployment", "machineset"),
    pytest.mark.asyncio(loop_scope="module"),
]


@rule("C2", "C3-R1", "C3-R2", "C3-R5", "C3-R6")
async def test_a_deployment_becomes_a_set_and_machines(client: MachineClient) -> None:
    made = await client.make(deployment(replicas=3))
    found = await client.until_complete()
    [owner], machines = await client.sets(), await client.machines()
    assert conditions(found) == {
        "Progressing": ("True", "NewMachineSetAvailable"),
        "Available": ("True", "MinimumReplicasAvailable"),
    }
    assert found.finalizers == owner.finalizers == (keys.FINALIZER,)
    assert found.annotations[keys.REVISION] == owner.annotations[keys.REVISION] == "1"
    assert owner.name.startswith("pool-")
    assert len(owner.name) == len("pool-") + 5
    assert owner.metadata["ownerReferences"][0]["uid"] == made.uid
    assert owner.annotations[keys.DESIRED_REPLICAS] == "3"
    assert owner.annotations[keys.MAX_REPLICAS] == "4"
    digits = owner.labels[keys.TEMPLATE_HASH]
    assert owner.spec["selector"]["matchLabels"] == {"name": "pool", keys.TEMPLATE_HASH: digits}
    assert owner.spec["minReadySeconds"] == 500
    for machine in machines:
        assert machine.name.startswith(f"{owner.name}-")
        assert machine.metadata["ownerReferences"][0]["uid"] == owner.uid
        assert machine.labels.items() >= {"name": "pool", keys.TEMPLATE_HASH: digits}.items()
        assert machine.spec["class"] == {"kind": "MachineClass", "name": "small"}
        assert machine.metadata["generation"] == 1  # its driver has nothing to add to it


@pytest.mark.parametrize("of", [MACHINE_DEPLOYMENTS, MACHINE_SETS])
async def test_too_many_replicas_are_refused_by_an_event(client: MachineClient, of: Resource) -> None:
    body = deployment(replicas=10_001)
    for field in ("strategy", "revisionHistoryLimit") if of is MACHINE_SETS else ():
        del body["spec"][field]
    await client.make({**body, "kind": of.kind}, of)

    async def is_reported() -> bool:
        return "InvalidSpec" in await client.events()

    await eventually(is_reported)
    assert await client.machines() == []


@rule("C6-R1", "C6-R2")
async def test_a_deployment_is_scaled_up_and_down(client: MachineClient) -> None:
    await client.complete(2)
    before = {one.uid for one in await client.machines()}
    await client.scale(5)
    await client.until_complete()
    grown = {one.uid for one in await client.machines()}
    assert len(grown) == 5
    assert before <= grown
    await client.scale(1)
    await client.until_complete()
    left = {one.uid for one in await client.machines()}
    assert len(left) == 1
    assert left <= grown


@rule("C5", "C5-R1", "L33")
async def test_another_class_replaces_machines_within_surge(client: MachineClient) -> None:
    client.driver.remembers = True
    await client.complete(3, surge=1, unavailable=0)
    await client.roll("big")
    found = await client.until(rolled)
    machines = await client.machines()
    assert {one.spec["class"]["name"] for one in machines} == {"big"}
    assert len(machines) == 3
    assert found.annotations[keys.REVISION] == "2"
    living: dict[str, bool] = {}
    most = 0
    for one in client.driver.seen:
        living[one.uid] = not one.deleting
        most = max(most, sum(living.values()))
    assert most == 4


@pytest.mark.long  # worker/test_restoration.py migrates machines
@rule("A15-R6")
async def test_no_machine_is_created_during_a_migration(client: MachineClient) -> None:
    await client.complete(2)
    worker = {
        "apiVersion": "extensions.gardener.cloud/v1alpha1",
        "kind": "Worker",
        "metadata": {"name": "w"},
        "spec": {"type": "another", "region": "local", "pools": [], "secretRef": {}},
    }
    await client.make(worker, WORKERS)
    last = {"type": "Migrate", "state": "Succeeded", "description": "d", "progress": 100}
    status = {"status": {"lastOperation": last | {"lastUpdateTime": "2026-01-01T00:00:00Z"}}}
    await client.shoot.merge(WORKERS, "w", status, part="status")
    [gone, stays] = await client.machines()
    await client.shoot.merge(MACHINES, gone.name, {"metadata": {"finalizers": None}})
    await client.shoot.delete(MACHINES, gone.name)
    # No event shows that no machine is created.
    await asyncio.sleep(2)
    assert [one.name for one in await client.machines()] == [stays.name]
    # The Worker may be gone before the machines are: then the Cluster still shows the migration.
    await client.shoot.cluster(status={"lastOperation": {"type": "Migrate"}})
    await client.shoot.delete(WORKERS, "w")
    await client.scale(3)
    await asyncio.sleep(1)  # as above
    assert [one.name for one in await client.machines()] == [stays.name]
    await client.shoot.cluster(status={"lastOperation": {"type": "Restore"}})
    await client.scale(4)
    await client.until_complete()


@pytest.mark.long  # waits are shown in commands/test_trace.py
async def test_a_complete_deployment_waits_to_renew_the_lease(client: MachineClient, tmp_path: Path) -> None:
    await client.complete(1)
    [item] = await traces.waiting(client.shoot, "machinedeployment", "pool", tmp_path)
    assert item["title"].startswith("machinedeployment: again at ")
    because = "because: the Lease machine-controller-manager of its namespace is renewed then"
    assert item["details"] == [because]
