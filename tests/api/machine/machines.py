"""Machines for tests: a control plane whose Shoot and provider cluster are one cluster."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from tests.support.kindworld import Client, KindWorld
from tests.support.machines import join, leave
from tests.support.machinesimulator import MachineSimulator
from tests.support.running import eventually, running
from windowbox.errors import WindowboxError
from windowbox.models import refs
from windowbox.models.objects import Object
from windowbox.models.refs import Resource
from workers.core.owned.manifests import manifest
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
        return await self.world.kube.create(refs.MACHINE_CLASSES, self.shoot.namespace, body)

    def class_body(self, name: str) -> dict[str, Any]:
        home, capacity = self.shoot.namespace, {"cpu": "1", "gpu": "0", "memory": "8Gi"}
        node = {"instanceType": "local", "region": "local", "zone": "0", "architecture": "amd64"}
        return manifest(
            refs.MACHINE_CLASSES,
            name,
            provider="local",
            secretRef={"name": "userdata", "namespace": home},
            credentialsSecretRef={"name": "cloudprovider", "namespace": home},
            providerSpec={"image": "example/node:1", "namespace": self.infra},
            nodeTemplate={"capacity": capacity, **node},
        )

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
        return await self.world.kube.create(refs.MACHINES, self.shoot.namespace, body)

    async def running(self, name: str, *of: str, **spec: Any) -> Object:
        """A new Machine, once it is Running."""
        await self.machine(name, *of, **spec)
        return await self.until(name, "Running")

    async def joined(self, name: str) -> Object:
        """A new Machine, once it is Running and its node has been written to."""
        machine = await self.running(name)
        await self.until_node(f"machine-{name}", lambda one: bool(one and one.finalizers))
        return machine

    async def until(self, name: str, phase: str) -> Object:
        found = await self.shoot.until(refs.MACHINES, name, lambda one: phase_of(one) == phase)
        assert found
        return found

    async def until_described(self, name: str, words: str) -> Object:
        """The Machine, once its last operation is described by these words."""
        found = await self.shoot.until(refs.MACHINES, name, lambda one: words in description(one))
        assert found
        return found

    async def delete(self, name: str) -> None:
        await self.shoot.delete(refs.MACHINES, name)

    async def end(self, name: str) -> None:
        """Delete a Machine, and wait until it is gone."""
        await self.delete(name)
        await self.shoot.until_gone(refs.MACHINES, name)

    async def leave(self, name: str) -> None:
        """Take a Machine away without its Pod, as its Worker is migrated."""
        worker = {"region": "local", "secretRef": {"name": "cloudprovider"}, "pools": []}
        await self.shoot.create(refs.WORKERS, "moving", worker, operation="migrate")
        await self.hold(refs.MACHINES, name, None)
        await self.end(name)

    async def hold(self, resource: Resource, name: str, *finalizers: str | None) -> None:
        """Set the finalizers of an object; None stands for none."""
        where = {refs.PODS: self.infra, refs.NODES: ""}.get(resource, self.shoot.namespace)
        patch = {"metadata": {"finalizers": None if None in finalizers else list(finalizers)}}
        await self.world.kube.merge(resource, where, name, patch)

    async def touch(self, machine: str) -> None:
        """Change the node of a Machine: nodes are looked at when they change."""
        patch = {"metadata": {"labels": {"seen": "true"}}}
        await self.world.kube.merge(refs.NODES, "", f"machine-{machine}", patch)

    async def pod(self, machine: str) -> Object:
        return await self.world.kube.get(refs.PODS, self.infra, f"machine-{machine}")

    async def find_node(self, machine: str) -> Object | None:
        return await self.world.kube.find(refs.NODES, "", f"machine-{machine}")

    async def remove_pod(self, machine: str) -> None:
        await self.world.kube.remove(refs.PODS, self.infra, f"machine-{machine}")

    async def token(self, name: str) -> Object | None:
        return await self.world.kube.find(refs.SECRETS, "kube-system", name)

    async def until_node(self, name: str, holds: Any) -> Object:
        found = await self.shoot.until(refs.NODES, name, holds)
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
    await world.kube.create(refs.NAMESPACES, "", {"metadata": {"name": infra}})
    await shoot.secret("userdata", userData=USER_DATA)
    simulator = MachineSimulator(world.kube, world.kube, infra, **simulated)
    made = Machines(world, shoot, simulator)
    if joined:
        await join(made.shoot)
    await made.machine_class()
    async with running(simulator.run()):
        yield made
        await _clean_up(made)
        await leave(made.shoot)


async def _clean_up(made: Machines) -> None:
    """Nodes have no namespace, so they would be in the way of others."""
    api, home = made.world.kube, made.shoot.namespace
    page = await api.page(refs.MACHINES._replace(within=home))
    for raw in page.items:
        with contextlib.suppress(WindowboxError):
            await api.merge(
                refs.MACHINES, home, Object(raw).name, {"metadata": {"labels": {"force-deletion": "True"}}}
            )
            await api.remove(refs.MACHINES, home, Object(raw).name)

    async def all_gone() -> bool:
        return not (await api.page(refs.MACHINES._replace(within=home))).items

    await eventually(all_gone)
