"""A Machine, from the API to the node that it becomes, and back."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator

import pytest_asyncio

from tests.api.machine.machines import Machines, machines
from tests.support.kindworld import KindWorld, kind_world
from tests.support.natsserver import NatsServer
from tests.support.rules import rule
from tests.support.servers import ControlPlane
from windowbox.models.refs import MACHINES, NODES, PODS, SECRETS, SERVICES


@pytest_asyncio.fixture
async def world(plane: ControlPlane, nats: NatsServer) -> AsyncIterator[KindWorld]:
    async with kind_world(plane, nats, "machine") as made:
        yield made


@pytest_asyncio.fixture
async def made(world: KindWorld) -> AsyncIterator[Machines]:
    async with machines(world) as found:
        yield found


@rule("B4-R1", "B4-R2", "B4-R3")
async def test_a_machine_gets_a_pod_a_secret_and_a_service(made: Machines) -> None:
    await made.machine("one")
    machine = await made.until("one", "Running")
    kube, infra = made.world.kube, made.infra
    pod = await kube.get(PODS, infra, "machine-one")
    labels = {"app": "machine", "machine": "one", "machine-provider": "local"}
    assert pod.labels == labels
    assert "ownerReferences" not in pod.metadata
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "machine-one",
        "uid": pod.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    service = await kube.get(SERVICES, infra, "machine-one")
    assert service.labels == service.spec["selector"] == labels
    assert service.metadata["ownerReferences"] == [owner]
    assert service.spec["clusterIP"] == "None"
    assert service.spec["publishNotReadyAddresses"]
    secret = await kube.get(SECRETS, infra, "machine-one-userdata")
    assert secret.metadata["ownerReferences"] == [owner]
    user_data = base64.b64decode(secret.raw["data"]["userdata"]).decode()
    assert "name=one\n" in user_data
    assert "BOOTSTRAP" not in user_data
    assert machine.spec["providerID"] == machine.labels["node"] == "machine-one"
    assert machine.finalizers == ("machine.sapcloud.io/machine-controller-manager",)
    assert machine.annotations == {"machinepriority.machine.sapcloud.io": "3"}
    assert machine.last_operation["description"] == "Machine one successfully joined the cluster"
    assert machine.last_operation["state"] == "Successful"
    assert {one["type"] for one in machine.status["conditions"]} >= {"Ready", "DiskPressure"}
    managers = {one["manager"] for one in pod.metadata["managedFields"] if one["operation"] == "Apply"}
    assert managers == {"machine-controller-manager-provider-local"}


@rule("B11-R3", "B3-R3")
async def test_a_deleted_machine_leaves_nothing(made: Machines) -> None:
    await made.machine("two")
    await made.until("two", "Running")
    await made.delete("two")
    await made.shoot.until_gone(MACHINES, "two")
    clock = asyncio.get_running_loop().time
    assert clock() - await made.simulator.until_gone("machine-two") < 5.0
    kube = made.world.kube
    assert await kube.find(NODES, "", "machine-two") is None
    assert await kube.find(PODS, made.infra, "machine-two") is None
