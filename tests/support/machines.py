"""MachineDeployments, MachineSets and Machines of tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from bus.clusters.registry import Member, Registry
from bus.transport.connection import connected
from tests.support.kindworld import Client, KindWorld
from tests.support.machinedriver import SimulatedDriver, set_phase
from tests.support.running import PATIENCE, running
from windowbox.errors import Missing
from windowbox.models import machinekeys as keys
from windowbox.models.machines import OperationState, Phase
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES, NODES, Resource, SecretKey
from windowbox.settings.bussettings import Access
from workers.machines import facts

_EVENTS = Resource("", "v1", "events", "Event")


def deployment(
    name: str = "pool", *, replicas: int = 3, class_name: str = "small", surge: Any = 1, unavailable: Any = 0,
    **spec: Any,
) -> dict[str, Any]:  # fmt: skip
    """A MachineDeployment as the Worker's reconciler writes it."""
    labels = {keys.DEPLOYMENT: name}
    rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
    return {
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": "MachineDeployment",
        "metadata": {"name": name, "labels": {keys.POOL: name}},
        "spec": {
            "replicas": replicas,
            "minReadySeconds": 500,
            "revisionHistoryLimit": 0,
            "selector": {"matchLabels": labels},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"class": {"kind": "MachineClass", "name": class_name}},
            },
            **spec,
        },
    }


@dataclass(frozen=True)
class DeploymentClient:
    """A client for the machine objects of one namespace."""

    shoot: Client

    async def make(self, body: dict[str, Any], resource: Resource = MACHINE_DEPLOYMENTS) -> Object:
        return await self.shoot.kube.create(resource, self.shoot.namespace, body)

    async def change(self, patch: dict[str, Any], name: str = "pool") -> None:
        await self.shoot.merge(MACHINE_DEPLOYMENTS, name, patch)

    async def scale(self, replicas: int, name: str = "pool") -> None:
        await self.change({"spec": {"replicas": replicas}}, name)

    async def roll(self, class_name: str, name: str = "pool") -> None:
        await self.change({"spec": {"template": {"spec": {"class": {"name": class_name}}}}}, name)

    async def listed(self, resource: Resource) -> list[Object]:
        page = await self.shoot.kube.page(resource, namespace=self.shoot.namespace, limit=5000)
        return [Object(raw) for raw in page.items]

    async def machines(self) -> list[Object]:
        return await self.listed(MACHINES)

    async def sets(self) -> list[Object]:
        return await self.listed(MACHINE_SETS)

    async def fail(self, machine: Object) -> None:
        """Set a machine's phase to Failed."""
        await set_phase(self.shoot.kube, machine, Phase.FAILED, OperationState.FAILED)

    async def intrude(self, owner: Object, name: str) -> None:
        """Create a surplus machine that a set owns."""
        template = owner.spec["template"]
        body = {
            "apiVersion": "machine.sapcloud.io/v1alpha1",
            "kind": "Machine",
            "metadata": {
                "name": name,
                "labels": template["metadata"]["labels"],
                "ownerReferences": [facts.owner_reference(owner, "MachineSet")],
            },
            "spec": template["spec"],
        }
        await self.make(body, MACHINES)

    async def events(self) -> set[str]:
        """The reasons of all Events of the namespace."""
        page = await self.shoot.kube.page(_EVENTS, namespace=self.shoot.namespace, limit=5000)
        return {str(raw.get("reason")) for raw in page.items}

    async def until_frozen(self, frozen: bool, name: str = "pool") -> Object:
        # Gardener's own checks at each creation, and otherwise once a minute.
        return await self.until(lambda one: ("Frozen" in conditions(one)) is frozen, name, patience=90.0)

    async def until(
        self, holds: Callable[[Object], bool], name: str = "pool", patience: float = PATIENCE
    ) -> Object:
        """The MachineDeployment, once it meets this condition."""
        found = await self.shoot.until(
            MACHINE_DEPLOYMENTS, name, lambda one: one is not None and holds(one), patience
        )
        assert found
        return found

    async def complete(self, replicas: int = 3, **spec: Any) -> Object:
        """A new MachineDeployment `pool`, once it is complete."""
        await self.make(deployment(replicas=replicas, **spec))
        return await self.until_complete()

    async def until_complete(self, name: str = "pool") -> Object:
        return await self.until(complete, name)

    async def until_gone(self, resource: Resource = MACHINE_DEPLOYMENTS, name: str = "pool") -> None:
        await self.shoot.until_gone(resource, name)


@dataclass(frozen=True)
class MachineClient(DeploymentClient):
    """The same, with a simulated driver."""

    driver: SimulatedDriver


def complete(found: Object) -> bool:
    """Whether all machines are available and have the newest template."""
    status, wanted = found.status, found.spec.get("replicas", 0)
    counts = [status.get(name) or 0 for name in ("replicas", "updatedReplicas", "availableReplicas")]
    return status.get("observedGeneration") == found.generation and counts == [wanted] * 3


def rolled(found: Object) -> bool:
    """Whether all machines have a later template than the first."""
    return complete(found) and found.status["observedGeneration"] > 1


def conditions(found: Object) -> dict[str, tuple[str, str]]:
    """Status and reason of each condition."""
    every = found.status.get("conditions") or found.status.get("machineSetCondition") or []
    return {one["type"]: (one["status"], one["reason"]) for one in every}


@asynccontextmanager
async def machine_client(world: KindWorld, **driver: Any) -> AsyncIterator[MachineClient]:
    """A namespace with a simulated driver."""
    shoot = await world.shoot()
    simulated = SimulatedDriver(shoot.kube, shoot.namespace, **driver)
    async with running(simulated.run()):
        yield MachineClient(shoot, simulated)


async def join(shoot: Client) -> None:
    """Make the Shoot a member, whose nodes are watched; they are in the same cluster."""
    await shoot.secret("gardener", kubeconfig=shoot.world.kubeconfig("target"))
    async with connected(Access(shoot.world.nats.url, name="join")) as bus:
        secret = SecretKey(namespace=shoot.namespace, name="gardener")
        await Registry(bus).join(Member(id=shoot.namespace, secret=secret, kinds=(NODES.id,)))


async def leave(shoot: Client) -> None:
    """The Shoot is no member any more: the tests after this one have other ones."""
    async with connected(Access(shoot.world.nats.url, name="leave")) as bus:
        with suppress(Missing):
            await Registry(bus).leave(shoot.namespace)
