"""The driver of windowbox under Gardener's machine-controller-manager, and under windowbox's own sets."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.api.machine.machines import Machines, machines, phase_of
from tests.support.auditlog import creators
from tests.support.kindworld import kind_world
from tests.support.machinecontrollermanager import manager
from tests.support.machines import DeploymentClient, deployment, rolled
from tests.support.natsserver import NatsServer
from tests.support.nodeagent import NodeAgents
from tests.support.rules import rule
from tests.support.running import eventually, running
from tests.support.servers import ControlPlane
from windowbox.models import machinekeys as keys
from windowbox.models.objects import Object
from windowbox.models.refs import LEASES, MACHINE_CLASSES, MACHINE_DEPLOYMENTS, MACHINES, NODES, PODS
from windowbox.settings.kindsettings import KindSettings, MachineSettings

_PATIENCE = 120.0
_STEPS = ["CandidateForUpdate", "SelectedForUpdate", "DrainSuccessful", "ReadyForUpdate", "UpdateSuccessful"]

_UNDER_GARDENERS = pytest.param("driver", id="C15-R1-driver-only")
_UNDER_OURS = pytest.param("full", id="C15-R2-full")

each_mode = pytest.mark.parametrize("mode", [_UNDER_GARDENERS, _UNDER_OURS])

gardeners_mode = pytest.mark.parametrize(
    "mode", [_UNDER_GARDENERS, pytest.param("full", id="C15-R2-full", marks=pytest.mark.long)]
)
"""Our own sets by night only: tests/api/machineset and tests/api/machine show them, with the driver."""

ours_mode = pytest.mark.parametrize(
    "mode", [pytest.param("driver", id="C15-R1-driver-only", marks=pytest.mark.long), _UNDER_OURS]
)


@dataclass(frozen=True)
class Driven(DeploymentClient):
    """Machines of a Shoot with the classes `small` and `big`, and the program that scales them."""

    made: Machines
    mode: str
    manager: Callable[[], contextlib.AbstractContextManager[None]]
    """Gardener's machine-controller-manager for this Shoot."""

    async def until(
        self, holds: Callable[[Object], bool], name: str = "pool", patience: float = _PATIENCE
    ) -> Object:
        return await super().until(holds, name, patience)

    async def machine(self, name: str, holds: Callable[[Object | None], bool]) -> None:
        await self.shoot.until(MACHINES, name, holds, _PATIENCE)

    async def node(self, machine: str, holds: Callable[[Object | None], bool]) -> None:
        await self.shoot.until(NODES, f"machine-{machine}", holds, _PATIENCE)

    async def mark(self, machine: str, **labels: str) -> None:
        """Set labels of the machine's node."""
        named = {getattr(keys, name): value for name, value in labels.items()}
        await self.shoot.merge(NODES, f"machine-{machine}", {"metadata": {"labels": named}})

    async def running(self) -> list[str]:
        return [one.name for one in await self.machines() if phase_of(one) == "Running"]

    async def pods(self) -> dict[str, str]:
        """The uid of each Pod by its name."""
        page = await self.made.world.kube.page(PODS, namespace=self.made.infra, limit=500)
        return {Object(raw).name: Object(raw).uid for raw in page.items}

    async def uids(self) -> dict[str, str]:
        """The machines by name, each with the uids of its object and of its Pod."""
        pods = await self.pods()
        return {one.name: f"{one.uid} {pods[f'machine-{one.name}']}" for one in await self.machines()}

    async def classes(self) -> list[str]:
        """The classes of all machines, each of which runs and has a Pod."""
        found = await self.machines()
        assert {phase_of(one) for one in found} <= {"Running"}
        assert (await self.pods()).keys() == {f"machine-{one.name}" for one in found}
        return [one.spec["class"]["name"] for one in found]


@pytest_asyncio.fixture
async def driven(plane: ControlPlane, nats: NatsServer, tmp_path: Path, mode: Any) -> AsyncIterator[Driven]:
    settings = KindSettings(machines=MachineSettings(mode=mode))
    pools = ("machine", "machinedeployment", "machineset") if mode == "full" else ("machine",)
    async with kind_world(plane, nats, *pools, kinds=settings) as world, machines(world) as made:
        namespace = made.shoot.namespace
        found = Driven(made.shoot, made, mode, lambda: manager(tmp_path, plane.kubeconfig, namespace))
        with found.manager() if mode == "driver" else contextlib.nullcontext():
            await made.machine_class("big")
            yield found
            await made.shoot.delete(MACHINE_DEPLOYMENTS, "pool")
            await made.shoot.until(MACHINE_DEPLOYMENTS, "pool", lambda one: one is None, _PATIENCE)
            assert await found.classes() == []


@pytest.mark.long  # test_a_lost_pod… makes one, test_people_choose… rolls one
@each_mode
async def test_pods_follow_a_deployment(driven: Driven) -> None:
    await driven.make(deployment(replicas=2))
    await driven.until_complete()
    assert await driven.classes() == ["small", "small"]
    await driven.roll("big")
    await driven.until(rolled)
    assert await driven.classes() == ["big", "big"]


@ours_mode
async def test_a_lost_pod_is_replaced_before_the_health_timeout(driven: Driven) -> None:
    await driven.make(deployment(replicas=2))
    await driven.until_complete()
    [lost, kept] = [one.name for one in await driven.machines()]
    await driven.made.world.kube.remove(PODS, driven.made.infra, f"machine-{lost}", grace=0)
    await driven.made.simulator.node(f"machine-{lost}", Ready="Unknown")
    await driven.machine(lost, lambda one: one is None)
    await driven.until_complete()
    assert await driven.classes() == ["small", "small"]
    assert phase_of(await driven.shoot.get(MACHINES, kept)) == "Running"


@gardeners_mode
@rule("C15-R4")
async def test_one_program_serves_machines_after_a_lost_lease(driven: Driven) -> None:
    await driven.make(deployment(replicas=3))
    await driven.until_complete()
    name, ours = "machine-controller-manager", "system:windowbox:worker"

    def is_gardeners(lease: Object | None) -> bool:
        return lease is not None and lease.spec.get("holderIdentity") not in (None, "", "windowbox")

    async def are_replaced() -> bool:
        found = await driven.running()
        return len(found) == 3 and not {first, second} & set(found)

    async def is_left_alone() -> bool:
        return driven.mode == "driver" or "NamespaceServedByOthers" in await driven.events()

    with driven.manager() if driven.mode == "full" else contextlib.nullcontext():
        await driven.shoot.delete(LEASES, name)
        await driven.shoot.until(LEASES, name, is_gardeners, _PATIENCE)
        first, second, kept = await driven.running()
        await driven.made.delete(first)
        await driven.made.delete(second)
        await eventually(are_replaced)
        await eventually(is_left_alone)
        await driven.made.world.quiet()
        assert len(await driven.machines()) == 3
        assert kept in await driven.running()
        assert len(await driven.pods()) == 3
        made_by = creators(driven.made.world, driven.shoot.namespace, "machines")
        by_windowbox = 3 if driven.mode == "full" else 0
        assert (made_by.pop(ours, 0), made_by.total()) == (by_windowbox, 5 - by_windowbox)
        await driven.shoot.delete(MACHINE_DEPLOYMENTS, "pool")
        await driven.shoot.until(MACHINE_DEPLOYMENTS, "pool", lambda one: one is None, _PATIENCE)


def in_place(kind: str, **limits: Any) -> dict[str, Any]:
    """A MachineDeployment of three machines that are updated in place."""
    strategy = {"type": "InPlaceUpdate", "inPlaceUpdate": {"orchestrationType": kind, **limits}}
    return deployment(replicas=3, strategy=strategy)


@pytest.mark.long  # the manual update below, and unit/machines/test_inplaceupdate.py step by step
@each_mode
@rule("C10", "C10-R3", "C10-R4", "L36", "L37")
async def test_machines_are_updated_one_after_the_other(driven: Driven) -> None:
    await driven.make(in_place("Auto", maxSurge=0, maxUnavailable=1))
    await driven.until_complete()
    before, agents = await driven.uids(), NodeAgents(driven.shoot.kube)

    def clean(node: Object | None) -> bool:
        """Whether the node takes Pods again, but for a taint that the node agent removes."""
        if node is None or node.spec.get("unschedulable"):
            return False
        taints = {one["key"] for one in node.spec.get("taints") or []}
        marks = {keys.CANDIDATE, keys.SELECTED, keys.UPDATE_RESULT} & node.labels.keys()
        return not marks and keys.CRITICAL_COMPONENTS in taints and keys.PREFER_NO_SCHEDULE not in taints

    async with running(agents.run()):
        if driven.mode == "full":
            await driven.shoot.delete(MACHINE_CLASSES, "small")  # its finalizer holds it while it is in use
        await driven.roll("big")
        await driven.until(rolled)
        for name in before:
            await driven.node(name, clean)
    assert await driven.uids() == before
    assert max(agents.selected) == 1
    assert list(agents.reasons.values()) == [_STEPS] * 3
    assert agents.schedulable == []
    # Gardener's own does not change the class.
    assert set(await driven.classes()) == {"big" if driven.mode == "full" else "small"}
    if driven.mode == "full":
        await driven.shoot.until_gone(MACHINE_CLASSES, "small")


@gardeners_mode
@rule("C10-R1", "C10-R5", "A11-R6")
async def test_people_choose_the_nodes_of_a_manual_update(driven: Driven) -> None:
    await driven.make(in_place("Manual", maxSurge=0, maxUnavailable=0))
    await driven.until_complete()
    before = await driven.uids()
    names, broken = sorted(before), max(before)
    agents = NodeAgents(driven.shoot.kube, fails={f"machine-{broken}"})

    def is_candidate(node: Object | None) -> bool:
        said = (node.status.get("conditions") if node else None) or []
        return any(one.get("reason") == "CandidateForUpdate" for one in said)

    async with running(agents.run()):
        await driven.roll("big")
        for name in names:
            await driven.node(name, is_candidate)
        assert max(agents.selected) == 0
        for name in names:
            await driven.mark(name, SELECTED="true")
        await driven.until(lambda one: one.status.get("updatedReplicas") == 2)
        await driven.machine(broken, lambda one: phase_of(one) == "InPlaceUpdateFailed")
        failed = await driven.shoot.get(MACHINES, broken)
        assert failed
        assert failed.last_operation["description"].endswith("no space left")
        assert await driven.uids() == before
        # A person has repaired it.
        await driven.mark(broken, UPDATE_RESULT=keys.SUCCESSFUL)
        await driven.until(rolled)
    assert await driven.uids() == before
