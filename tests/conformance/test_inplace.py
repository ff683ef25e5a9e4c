"""Updates in place, with the driver of windowbox: under Gardener's controller, and under our own sets."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.api.machine.machines import Machines, machines, phase_of
from tests.support.kindworld import kind_world
from tests.support.machinecontrollermanager import manager
from tests.support.machines import complete, deployment
from tests.support.natsserver import NatsServer
from tests.support.nodeagent import NodeAgents
from tests.support.rules import rule
from tests.support.running import running
from tests.support.servers import ControlPlane
from windowbox.models import machinekeys as keys
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINE_CLASSES, MACHINE_DEPLOYMENTS, MACHINES, NODES, PODS
from windowbox.settings.kindsettings import KindSettings, MachineSettings

_PATIENCE = 120.0
_SETS = ("machinedeployment", "machineset")
_BIG = {"spec": {"template": {"spec": {"class": {"name": "big"}}}}}
_ALL = [
    "CandidateForUpdate", "SelectedForUpdate", "DrainSuccessful", "ReadyForUpdate", "UpdateSuccessful"
]  # fmt: skip

both = pytest.mark.parametrize("mode", ["driver", "full"])


@asynccontextmanager
async def shoot(plane: ControlPlane, nats: NatsServer, folder: Path, mode: Any) -> AsyncIterator[Machines]:
    """A Shoot with a class `big` besides."""
    settings = KindSettings(machines=MachineSettings(mode=mode))
    pools = ("machine", *(_SETS if mode == "full" else ()))
    async with kind_world(plane, nats, *pools, kinds=settings) as world, machines(world) as made:
        with contextlib.ExitStack() as stack:
            if mode == "driver":
                stack.enter_context(manager(folder, plane.kubeconfig, made.shoot.namespace))
            await made.machine_class("big")
            yield made
            await made.shoot.delete(MACHINE_DEPLOYMENTS, "pool")
            await made.shoot.until(MACHINE_DEPLOYMENTS, "pool", lambda one: one is None, _PATIENCE)


def in_place(kind: str, **limits: Any) -> dict[str, Any]:
    """A MachineDeployment of three machines that are updated in place."""
    strategy = {"type": "InPlaceUpdate", "inPlaceUpdate": {"orchestrationType": kind, **limits}}
    return deployment(replicas=3, strategy=strategy)


@both
@rule("C10", "C10-R3", "C10-R4", "L36", "L37")
async def test_machines_are_updated_one_after_the_other(
    plane: ControlPlane, nats: NatsServer, tmp_path: Path, mode: str
) -> None:
    async with shoot(plane, nats, tmp_path, mode) as made:
        before = await _up(made, in_place("Auto", maxSurge=0, maxUnavailable=1))
        agents = NodeAgents(made.world.kube)
        async with running(agents.run()):
            if mode == "full":
                await made.shoot.delete(MACHINE_CLASSES, "small")  # which stays until nobody needs it
            await made.shoot.merge(MACHINE_DEPLOYMENTS, "pool", _BIG)
            await _until(made, lambda one: complete(one) and one.status["observedGeneration"] > 1)
            await _until_clean(made)
        assert await _uids(made) == before
        assert max(agents.selected) == 1
        assert list(agents.reasons.values()) == [_ALL] * 3
        assert agents.schedulable == []
        # Gardener's own leaves the class as it was.
        classes = {"full": {"big"}, "driver": {"small"}}
        assert {one.spec["class"]["name"] for one in await _machines(made)} == classes[mode]
        if mode == "full":
            await made.shoot.until_gone(MACHINE_CLASSES, "small")


@both
@rule("C10-R1", "C10-R5", "A11-R6")
async def test_people_choose_the_nodes_of_a_manual_update(
    plane: ControlPlane, nats: NatsServer, tmp_path: Path, mode: str
) -> None:
    async with shoot(plane, nats, tmp_path, mode) as made:
        before = await _up(made, in_place("Manual", maxSurge=0, maxUnavailable=0))
        agents, nodes = NodeAgents(made.world.kube), sorted(before)
        agents.fails = {f"machine-{nodes[2]}"}
        async with running(agents.run()):
            await made.shoot.merge(MACHINE_DEPLOYMENTS, "pool", _BIG)
            for name in nodes:
                await _until_node(made, name, "CandidateForUpdate")
            assert max(agents.selected) == 0
            for name in nodes:
                labels = {"metadata": {"labels": {keys.SELECTED: "true"}}}
                await made.world.kube.merge(NODES, "", f"machine-{name}", labels)
            await _until(made, lambda one: one.status.get("updatedReplicas") == 2)
            await made.shoot.until(
                MACHINES, nodes[2], lambda one: phase_of(one) == "InPlaceUpdateFailed", _PATIENCE
            )
            failed = await made.shoot.get(MACHINES, nodes[2])
            assert failed
            assert failed.last_operation["description"].endswith("no space left")
            assert await _uids(made) == before
            # A person has put it right.
            result = {"metadata": {"labels": {keys.UPDATE_RESULT: keys.SUCCESSFUL}}}
            await made.world.kube.merge(NODES, "", f"machine-{nodes[2]}", result)
            await _until(made, lambda one: complete(one) and one.status["observedGeneration"] > 1)
        assert await _uids(made) == before


async def _up(made: Machines, body: dict[str, Any]) -> dict[str, str]:
    await made.world.kube.create(MACHINE_DEPLOYMENTS, made.shoot.namespace, body)
    await _until(made, complete)
    return await _uids(made)


async def _until(made: Machines, holds: Any) -> None:
    await made.shoot.until(MACHINE_DEPLOYMENTS, "pool", lambda one: one is not None and holds(one), _PATIENCE)


async def _until_node(made: Machines, machine: str, reason: str) -> None:
    def holds(node: Object | None) -> bool:
        said = (node.status.get("conditions") if node else None) or []
        return any(one.get("reason") == reason for one in said)

    await made.shoot.until(NODES, f"machine-{machine}", holds, _PATIENCE)


async def _until_clean(made: Machines) -> None:
    """Until Pods may go to all nodes again, but for a taint that the node agent takes away."""

    def clean(node: Object | None) -> bool:
        if node is None or node.spec.get("unschedulable"):
            return False
        taints = {one["key"] for one in node.spec.get("taints") or []}
        marks = {keys.CANDIDATE, keys.SELECTED, keys.UPDATE_RESULT} & node.labels.keys()
        return not marks and keys.CRITICAL_COMPONENTS in taints and keys.PREFER_NO_SCHEDULE not in taints

    for one in await _machines(made):
        await made.shoot.until(NODES, f"machine-{one.name}", clean, _PATIENCE)


async def _machines(made: Machines) -> list[Object]:
    page = await made.world.kube.page(MACHINES, namespace=made.shoot.namespace, limit=500)
    return [Object(raw) for raw in page.items]


async def _uids(made: Machines) -> dict[str, str]:
    """The machines by name, each with the uids of its object and of its Pod."""
    page = await made.world.kube.page(PODS, namespace=made.infra, limit=500)
    pods = {Object(raw).name: Object(raw).uid for raw in page.items}
    return {one.name: f"{one.uid} {pods[f'machine-{one.name}']}" for one in await _machines(made)}
