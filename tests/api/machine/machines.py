"""Machines for tests: a control plane whose Shoot and provider cluster are one cluster."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from bus.clusters.registry import Member, Registry
from bus.transport.connection import connected
from tests.support.kindworld import Client, KindWorld
from tests.support.machinesimulator import MachineSimulator
from tests.support.running import eventually, running
from windowbox.errors import WindowboxError
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINE_CLASSES, MACHINES, NAMESPACES, NODES, SECRETS, Resource, SecretKey
from windowbox.settings.bussettings import Access
from workers.machines.set import setplan
from workers.machines.sets import MachineSet

USER_DATA = b"#!/bin/sh\ntoken=<<BOOTSTRAP_TOKEN>>\nname=<<MACHINE_NAME>>\n"
TOKENS = "bootstrap-token-"
EVENTS = Resource("", "v1", "events", "Event")


@dataclass
class Machines:
    """The machines of one Shoot, as machine-controller-manager and a person see them."""

    world: KindWorld
    shoot: Client
    simulator: MachineSimulator

    @property
    def infra(self) -> str:
        return f"infra-{self.shoot.namespace}"

    async def machine_class(self, name: str = "small", **fields: Any) -> Object:
        body = self.class_body(name) | fields
        return await self.world.kube.create(MACHINE_CLASSES, self.shoot.namespace, body)

    def class_body(self, name: str) -> dict[str, Any]:
        capacity = {"cpu": "1", "gpu": "0", "memory": "8Gi"}
        return {
            "apiVersion": "machine.sapcloud.io/v1alpha1",
            "kind": "MachineClass",
            "metadata": {"name": name},
            "provider": "local",
            "secretRef": {"name": "userdata", "namespace": self.shoot.namespace},
            "credentialsSecretRef": {"name": "cloudprovider", "namespace": self.shoot.namespace},
            "providerSpec": {"image": "example/node:1", "namespace": self.infra},
            "nodeTemplate": {
                "capacity": capacity,
                "instanceType": "local",
                "region": "local",
                "zone": "0",
                "architecture": "amd64",
            },
        }

    async def machine(
        self, name: str = "", of: str = "small", *, of_set: bool = False, **spec: Any
    ) -> Object:
        """As a person makes one, or a MachineSet of windowbox."""
        name = name or f"m-{uuid.uuid4().hex[:8]}"
        template = {
            "metadata": {"labels": {"name": "pool"}},
            "spec": {"class": {"kind": "MachineClass", "name": of}, **spec},
        }
        body = setplan.machine(MachineSet(Object({"spec": {"template": template}})), name)
        del body["metadata"]["ownerReferences"]
        if not of_set:
            body |= {"metadata": {"name": name, **template["metadata"]}, "spec": template["spec"]}
        return await self.world.kube.create(MACHINES, self.shoot.namespace, body)

    async def until(self, name: str, phase: str) -> Object:
        found = await self.shoot.until(MACHINES, name, lambda one: phase_of(one) == phase)
        assert found
        return found

    async def until_described(self, name: str, words: str) -> Object:
        """The Machine, once its last operation is described by these words."""
        found = await self.shoot.until(MACHINES, name, lambda one: words in description(one))
        assert found
        return found

    async def delete(self, name: str) -> None:
        await self.shoot.delete(MACHINES, name)

    async def token(self, name: str) -> Object | None:
        return await self.world.kube.find(SECRETS, "kube-system", name)

    async def until_node(self, name: str, holds: Any) -> Object:
        found = await self.shoot.until(NODES, name, holds)
        assert found
        return found


def phase_of(machine: Object | None) -> str:
    return str((machine.status.get("currentStatus") or {}).get("phase")) if machine else "gone"


def description(machine: Object | None) -> str:
    return str(machine.last_operation.get("description")) if machine else ""


@contextlib.asynccontextmanager
async def machines(world: KindWorld, *, joined: bool = True, **simulated: Any) -> AsyncIterator[Machines]:
    """A Shoot with a class `small`, and a simulator for its Pods."""
    shoot = await world.shoot()
    infra = f"infra-{shoot.namespace}"
    await world.kube.create(NAMESPACES, "", {"metadata": {"name": infra}})
    await shoot.secret("userdata", userData=USER_DATA)
    simulator = MachineSimulator(world.kube, world.kube, infra, **simulated)
    made = Machines(world, shoot, simulator)
    if joined:
        await join(made)
    await made.machine_class()
    async with running(simulator.run()):
        yield made
        await _clean_up(made)


async def join(made: Machines) -> None:
    """Let the cluster of the Shoot take part."""
    shoot = made.shoot
    await shoot.secret("gardener", kubeconfig=made.world.kubeconfig("target"))
    async with connected(Access(made.world.nats.url, name="join")) as bus:
        secret = SecretKey(namespace=shoot.namespace, name="gardener")
        await Registry(bus).join(Member(id=shoot.namespace, secret=secret, kinds=(NODES.id,)))


async def _clean_up(made: Machines) -> None:
    """Nodes have no namespace, so they would be in the way of others."""
    api, home = made.world.kube, made.shoot.namespace
    page = await api.page(MACHINES._replace(within=home))
    for raw in page.items:
        with contextlib.suppress(WindowboxError):
            await api.merge(
                MACHINES, home, Object(raw).name, {"metadata": {"labels": {"force-deletion": "True"}}}
            )
            await api.remove(MACHINES, home, Object(raw).name)

    async def all_gone() -> bool:
        return not (await api.page(MACHINES._replace(within=home))).items

    await eventually(all_gone)
