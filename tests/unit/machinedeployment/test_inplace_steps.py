"""Updates in place: what single steps write to sets, machines and nodes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.machineapi import MachineApi
from tests.support.machinefacts import deployment, machine, machine_set
from tests.support.rules import rule
from windowbox.models import machinekeys as keys
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINE_SETS, NODES
from workers.machinedeployment import strategies
from workers.machinedeployment.rollout import DeploymentRun
from workers.machinedeployment.state import State
from workers.machines import deployments
from workers.machines.sets import MachineSet

MARK = {"key": keys.PREFER_NO_SCHEDULE, "value": "True", "effect": "PreferNoSchedule"}
DISABLED = {"labels": {"name": "pool", keys.SCALE_UP_DISABLED: "true"}}
CANDIDATE = {"labels": {keys.CANDIDATE: "true"}}
OLD, NEW = "pool-a", "pool-bb"


def run(api: MachineApi, old: str, new: str, *, kind: str = "InPlaceUpdate", **fields: Any) -> DeploymentRun:
    """A deployment of three machines; `old` and `new` name those of its sets. No old ones: no old set."""
    limits = {"maxSurge": 0, "maxUnavailable": 1}
    strategy: dict[str, Any] = {"type": kind, "inPlaceUpdate": {**limits, "orchestrationType": "Auto"}}
    if kind == "RollingUpdate":
        strategy = {"type": kind, "rollingUpdate": limits}
    of = deployment(spec={"strategy": strategy}, metadata={"annotations": {keys.REVISION: "1"}})
    sets = [machine_set(NEW, len(new), class_name="big", **fields.pop(NEW, {}))]
    if old or kind == "InPlaceUpdate":
        sets.insert(0, machine_set(OLD, len(old), **fields.pop(OLD, {})))
    found = [MachineSet(api.add(MACHINE_SETS, one.object)) for one in sets]
    names = {OLD: old, NEW: new}
    machines = {
        one.uid: tuple(
            machine(name, labels={"name": "pool", "node": name}, **fields) for name in names[one.name]
        )
        for one in found
    }
    return api.run(State(of, deployments.checked(of), tuple(found), machines))


def node(api: MachineApi, name: str, metadata: Any = None, **parts: Any) -> None:
    head = {"name": name, **(metadata or {})}
    api.add(NODES, Object({"metadata": head, "spec": {"taints": [MARK]}, **parts}))


@rule("C10")
@pytest.mark.parametrize("kind", ["InPlaceUpdate", "RollingUpdate", "Recreate"])
async def test_a_set_whose_template_is_wanted_again_bears_no_marks_of_an_old_one(kind: str) -> None:
    api = MachineApi()
    for name in "xyz":
        node(api, name, CANDIDATE)
    await strategies.advance(run(api, "", "xyz", kind=kind, **{NEW: {"metadata": DISABLED}}))
    assert keys.SCALE_UP_DISABLED not in api.objects[f"{MACHINE_SETS.id} {NEW}"].labels
    for name in "xyz":
        assert keys.CANDIDATE not in api.node(name).labels
        assert not api.node(name).spec.get("taints")
