"""In-place updates: the writes of single steps to sets, machines and nodes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.machineapi import MachineApi
from tests.support.machinefacts import deployment, machine, machine_set, sized, state
from tests.support.rules import rule
from windowbox.errors import Conflict, PermanentError, TransientError, Unreachable
from windowbox.models import machinekeys as keys
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINE_SETS, MACHINES, NODES
from workers.machines import deployments
from workers.machines.deployment import deploymentreconciler, inplaceupdate, setsizes
from workers.machines.deployment.deploymentrun import DeploymentRun
from workers.machines.deployment.deploymentstate import State
from workers.machines.facts import MachineFacts
from workers.machines.sets import MachineSet

MARK = {"key": keys.PREFER_NO_SCHEDULE, "value": "True", "effect": "PreferNoSchedule"}
DISABLED = {"labels": {"name": "pool", keys.SCALE_UP_DISABLED: "true"}}
CANDIDATE = {"labels": {keys.CANDIDATE: "true"}}
OLD, NEW = "pool-a", "pool-bb"


def run(
    api: MachineApi, old: str, new: str, *, kind: str = "InPlaceUpdate", marked: str = ""
) -> DeploymentRun:
    """A deployment of three machines; `old` and `new` name those of its sets. No old set where none rolls.

    The set `marked` must not grow.
    """
    limits = {"maxSurge": 0, "maxUnavailable": 1}
    strategy: dict[str, Any] = {"type": kind, "inPlaceUpdate": {**limits, "orchestrationType": "Auto"}}
    if kind == "RollingUpdate":
        strategy = {"type": kind, "rollingUpdate": limits}
    of = deployment(spec={"strategy": strategy}, metadata={"annotations": {keys.REVISION: "1"}})
    sets = [machine_set(NEW, len(new), class_name="big", metadata=DISABLED if marked == NEW else {})]
    if old or kind == "InPlaceUpdate":
        sets.insert(0, machine_set(OLD, len(old), metadata=DISABLED if marked == OLD else {}))
    found = [MachineSet(api.add(MACHINE_SETS, one.object)) for one in sets]
    names = {OLD: old, NEW: new}
    machines = {one.uid: tuple(_machine(api, name) for name in names[one.name]) for one in found}
    return api.run(State(of, deployments.checked(of), tuple(found), machines))


def _machine(api: MachineApi, name: str) -> MachineFacts:
    labels = {"name": "pool", "node": name}
    api.add(MACHINES, Object({"metadata": {"name": name, "labels": labels}}))
    return machine(name, labels=labels, version="1", update="UpdateSuccessful")


def node(api: MachineApi, name: str, metadata: Any = None, **parts: Any) -> None:
    head = {"name": name, **(metadata or {})}
    api.add(NODES, Object({"metadata": head, "spec": {"taints": [MARK]}, **parts}))


@rule("C10")
@pytest.mark.parametrize("kind", ["InPlaceUpdate", "RollingUpdate", "Recreate"])
async def test_a_set_loses_the_marks_of_an_old_set_when_its_template_returns(kind: str) -> None:
    api = MachineApi()
    for name in "xyz":
        node(api, name, CANDIDATE)
    await deploymentreconciler.advance(run(api, "", "xyz", kind=kind, marked=NEW))
    assert keys.SCALE_UP_DISABLED not in api.stored[f"{MACHINE_SETS.id} {NEW}"].labels
    for name in "xyz":
        assert keys.CANDIDATE not in api.node(name).labels
        assert not api.node(name).spec.get("taints")


async def test_an_unreachable_api_server_gets_one_request() -> None:
    api = MachineApi({"Node": Unreachable("no answer")})
    for name in "abc":
        node(api, name)
    step = run(api, "abc", "")
    await deploymentreconciler.advance(step)
    assert api.asked.count("Node a") == 1
    assert not {"Node b", "Node c"} & set(api.asked)
    assert isinstance(step.node_error, Unreachable), "the run ends, with a status, and is tried again later"


@pytest.mark.parametrize(
    ("error", "again"), [(Conflict("changed"), 1.0), (PermanentError("forbidden"), None)], ids=type
)
async def test_only_a_conflict_on_a_node_is_retried_soon(
    error: TransientError | PermanentError, again: float | None
) -> None:
    api = MachineApi({"Node": error})
    node(api, "a")
    step = run(api, "a", "xy", marked=OLD)
    await inplaceupdate.update(step)
    assert step.again == again
    assert (step.node_error is error) is (again is None)


async def test_a_run_that_cannot_list_nodes_still_reports_a_status() -> None:
    away = Unreachable("no answer")
    step = run(MachineApi({"NodeList": away}), "a", "xy", marked=OLD)
    await inplaceupdate.update(step)
    assert step.node_error is away


@rule("C10")
async def test_a_handed_over_machine_is_not_counted_twice() -> None:
    api = MachineApi()
    said = {"conditions": [{"type": "InPlaceUpdate", "reason": "UpdateSuccessful"}]}
    labels = {keys.CANDIDATE: "true", keys.SELECTED: "true", keys.UPDATE_RESULT: keys.SUCCESSFUL}
    node(api, "a", {"labels": labels}, status=said)
    step = run(api, "ab", "x", marked=OLD)
    await api.merge(MACHINES, "", "a", {"metadata": {"labels": {"handed": "over"}}})
    with pytest.raises(Conflict):
        await inplaceupdate.update(step)
    sizes = {name: api.stored[f"{MACHINE_SETS.id} {name}"].spec["replicas"] for name in (OLD, NEW)}
    assert sizes == {OLD: 2, NEW: 1}


@rule("C10")
@pytest.mark.parametrize(("replicas", "sizes"), [(9, (3, 2)), (3, (1, 2)), (0, (0, 0))])
async def test_an_update_continues_after_scaling(replicas: int, sizes: tuple[int, int]) -> None:
    limits = {"maxSurge": 0, "maxUnavailable": 1}
    of = deployment(replicas, spec={"strategy": {"type": "InPlaceUpdate", "inPlaceUpdate": limits}})
    sets = [machine_set(OLD, 3, metadata=sized(5, 5))]
    sets.append(machine_set(NEW, 2, class_name="big", metadata=sized(5, 5)))
    api = MachineApi()
    step = api.run(state(of, *(MachineSet(api.add(MACHINE_SETS, one.object)) for one in sets)))
    assert setsizes.is_scaling(step.state)
    await deploymentreconciler.advance(step)
    assert tuple(one.wanted for one in step.state.sets) == sizes
    assert not setsizes.is_scaling(step.state)
