"""Machines of clouds that the cloud refuses: unknown images, used reservations, faults, foreign classes."""

from __future__ import annotations

from typing import Any

import pytest

from clouds.frame.operator.faults import SetFault
from tests.api.machine.cloudmachines import NAME, change, machines_of, shoot_of
from tests.api.machine.machines import Machines, phase_of
from tests.api.worker import workerobjects
from tests.support import cloudinventory, cloudshoots
from tests.support.kindworld import KindWorld
from tests.support.rules import rule
from windowbox.models import refs
from windowbox.models.objects import Object
from windowbox.settings.kindsettings import KindSettings

pytestmark = [
    pytest.mark.serves(
        "infrastructure",
        "worker",
        "machinedeployment",
        "machineset",
        "machine",
        kinds=KindSettings(clouds=cloudshoots.SETTINGS),
    ),
    pytest.mark.asyncio(loop_scope="module"),
]

LAST = ("0/minimum", "0/maximum")


async def another_class(made: Machines, name: str, changes: dict[str, Any]) -> None:
    """A MachineClass like that of the Worker, with changes."""
    found = await workerobjects.listed(made.shoot, refs.MACHINE_CLASSES)
    one = next(one for one in found if one.name.startswith(made.shoot.namespace))
    body = cloudshoots.changed({k: v for k, v in one.raw.items() if k not in ("metadata", "status")}, changes)
    body |= {"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass", "metadata": {"name": name}}
    await made.world.kube.create(refs.MACHINE_CLASSES, made.shoot.namespace, body)


async def remove(made: Machines, machine: str, class_: str) -> None:
    await made.end(machine)
    await made.shoot.delete(refs.MACHINE_CLASSES, class_)


@rule("ALL-Z6", "AWS-W6")
async def test_an_image_that_nobody_knows_is_an_error_until_it_is_added(world: KindWorld) -> None:
    async with shoot_of(world, "aws", dict.fromkeys(LAST, 0)) as made:
        await made.shoot.until_ready(refs.WORKERS, NAME)
        await another_class(made, "unknown", {"providerSpec/ami": "ami-unknown"})
        await made.machine("strange", of="unknown")
        words = "InvalidAMIID.NotFound: The image id '(ami-unknown)' does not exist"
        found = await made.until_described("strange", words)
        assert phase_of(found) == "CrashLoopBackOff"
        home = world.client(made.infra)
        assert await home.get(refs.PODS, "machine-strange") is None

        await cloudinventory.add(world, cloudinventory.account("aws"), {"kind": "image", "id": "ami-unknown"})
        await made.until("strange", "Running")
        await remove(made, "strange", "unknown")


@rule("ALL-Z6")
async def test_an_image_of_azure_that_nobody_knows_leaves_the_machine_in_creation(world: KindWorld) -> None:
    async with shoot_of(world, "azure", dict.fromkeys(LAST, 0)) as made:
        await made.shoot.until_ready(refs.WORKERS, NAME)
        path = "providerSpec/properties/storageProfile"
        lost = {f"{path}/dataDisks": [{"name": "a", "lun": 0, "imageRef": {"id": "/no/image"}}]}
        await another_class(made, "unknown", lost)
        await made.machine("stuck", of="unknown", creationTimeout="3s")
        found = await made.until("stuck", "Failed")
        assert await world.client(made.infra).get(refs.PODS, "machine-stuck") is None
        assert found.spec["providerID"] == "azure:///westeurope/stuck"
        await remove(made, "stuck", "unknown")


@rule("ALL-Z6")
async def test_machines_outlive_the_version_of_their_image_in_the_profile(world: KindWorld) -> None:
    async with shoot_of(world, "gcp") as made:
        await made.shoot.until_ready(refs.WORKERS, NAME)
        before = await machines_of(made)
        lost: dict[str, Any] = {"spec": {"cloudProfile": {"spec": {"providerConfig": {"machineImages": []}}}}}
        await made.shoot.merge(refs.CLUSTERS, made.shoot.namespace, lost)
        gone = sorted(before)[0]
        await made.delete(gone)
        await made.shoot.until_gone(refs.MACHINES, gone)
        await change(made, "gcp", {})
        after = await machines_of(made)
        assert (len(after), len(after.keys() & before.keys())) == (2, 1)


@rule("EQX-W1")
async def test_each_machine_takes_a_reservation_and_gives_it_back(world: KindWorld) -> None:
    account = cloudinventory.account("equinixmetal")
    for id_ in ("one", "two"):
        await cloudinventory.add(world, account, {"kind": "reservation", "id": id_})

    async def users() -> set[str]:
        found = [
            await cloudinventory.stored(world, "existing", account, "reservation", id_)
            for id_ in ("one", "two")
        ]
        return {str((one or {}).get("used_by", "")) for one in found}

    only = cloudshoots.config("equinixmetal", reservationIDs=["one", "two"], reservedDevicesOnly=True)
    async with shoot_of(world, "equinixmetal", {"0/providerConfig": only}) as made:
        await made.shoot.until_ready(refs.WORKERS, NAME)
        first = await machines_of(made)
        assert await users() == {f"{made.shoot.namespace}/{name}" for name in first}

        spec = await cloudshoots.worker_spec(
            made.shoot, "equinixmetal", {"0/providerConfig": only, **dict.fromkeys(LAST, 3)}
        )
        await made.shoot.ask(refs.WORKERS, NAME, spec=spec)

        def depleted(found: Object | None) -> bool:
            error = found.status.get("lastError") if found else None
            return bool(error and "no reservation is free (one, two)" in error["description"])

        failed = await made.shoot.until(refs.WORKERS, NAME, depleted)
        assert failed
        [third] = set(await workerobjects.names(made.shoot, refs.MACHINES)) - first.keys()
        machine = await made.shoot.get(refs.MACHINES, third)
        assert machine
        assert machine.last_operation["errorCode"] == "ResourceExhausted"

        either = cloudshoots.config("equinixmetal", reservationIDs=["one", "two"])
        await change(made, "equinixmetal", {"0/providerConfig": either, **dict.fromkeys(LAST, 3)})
        assert await workerobjects.names(made.shoot, refs.MACHINES) == sorted([*first, third])
    assert await users() == {""}


@rule("EQX-W1")
async def test_a_class_that_becomes_invalid_blocks_no_deletion(world: KindWorld) -> None:
    account = cloudinventory.account("equinixmetal")
    await cloudinventory.add(world, account, {"kind": "reservation", "id": "kept"})

    async def user() -> str:
        found = await cloudinventory.stored(world, "existing", account, "reservation", "kept")
        return str((found or {}).get("used_by", ""))

    async with shoot_of(world, "equinixmetal", dict.fromkeys(LAST, 0)) as made:
        await made.shoot.until_ready(refs.WORKERS, NAME)
        await another_class(made, "fading", {"providerSpec/reservationIDs": ["kept"]})
        await made.running("leaving", "fading")
        assert await user() == f"{made.shoot.namespace}/leaving"
        await made.shoot.merge(
            refs.MACHINE_CLASSES, "fading", {"providerSpec": {"machineType": None, "metro": 5}}
        )
        await made.touch("leaving")
        await remove(made, "leaving", "fading")
    assert await user() == ""


async def test_a_fault_on_machines_of_one_shoot_delays_them(world: KindWorld) -> None:
    async with shoot_of(world, "aws", dict.fromkeys(LAST, 0)) as made:
        await made.shoot.until_ready(refs.WORKERS, NAME)
        fault = SetFault("depleted", on="machines", shoot=made.shoot.namespace, times=1)
        await cloudinventory.fail(world, "aws", fault)
        one = (await workerobjects.names(made.shoot, refs.MACHINE_CLASSES))[0]
        await made.machine("late", of=one)
        found = await made.until_described("late", "InsufficientInstanceCapacity")
        assert found.last_operation["errorCode"] == "ResourceExhausted"
        await made.until("late", "Running")
        await made.end("late")


async def test_a_pod_without_a_machine_is_deleted_in_the_cluster_of_clouds(world: KindWorld) -> None:
    async with shoot_of(world, "aws", dict.fromkeys(LAST, 0)) as made:
        await made.shoot.until_ready(refs.WORKERS, NAME)
        one = (await workerobjects.names(made.shoot, refs.MACHINE_CLASSES))[0]
        await made.running("left", one)
        await made.hold(refs.MACHINES, "left", None)
        await made.end("left")
        await world.client(made.infra).until_gone(refs.PODS, "machine-left")


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "spelling": ({"provider": "Aws"}, "provider is 'Aws': set it to local, or list its cloud"),
    "type": ({"providerSpec/machineType": "m5 large"}, "machine type is 'm5 large': give it"),
    "empty": ({"providerSpec": {}}, "machine type is '': give it"),
    "region": ({"providerSpec/region": "x" * 64}, "region is 'xxx"),
}


async def test_a_class_that_no_driver_can_read_says_why(world: KindWorld) -> None:
    async with shoot_of(world, "aws", dict.fromkeys(LAST, 0)) as made:
        await made.shoot.until_ready(refs.WORKERS, NAME)
        for name, (changes, _) in WRONG.items():
            await another_class(made, name, changes)
            await made.machine(name, of=name)
        for name, (_, words) in WRONG.items():
            await made.until_described(name, words)
            await remove(made, name, name)
