"""In-place updates: the selection and the patches of nodes, and the writes of single steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.cases import cases
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
from workers.machines.sets import MachineSet

OLD, NEW = "pool-a", "pool-bb"
CANDIDATE, SELECTED = {keys.CANDIDATE: "true"}, {keys.CANDIDATE: "true", keys.SELECTED: "true"}
ALL = {"a": CANDIDATE, "b": CANDIDATE, "c": CANDIDATE, "n": {}}
MARK = {"key": keys.PREFER_NO_SCHEDULE, "value": "True", "effect": "PreferNoSchedule"}
DISABLED = {"labels": {"name": "pool", keys.SCALE_UP_DISABLED: "true"}}
SAID = {"conditions": [{"type": "InPlaceUpdate", "reason": "UpdateSuccessful"}]}


def rolled(
    old: str,
    new: str = "",
    *,
    unavailable: int = 1,
    down: str = "",
    marked: str = "",
    kind: str = "InPlaceUpdate",
) -> State:
    """A deployment of three machines; `old` and `new` name those of its sets. `marked` may not grow."""
    limits = {"maxSurge": 0, "maxUnavailable": unavailable}
    strategy = {"type": kind, kind[0].lower() + kind[1:]: limits}
    of = deployment(spec={"strategy": strategy}, metadata={"annotations": {keys.REVISION: "1"}})
    sets = {
        name: machine_set(name, len(names), class_name=of_class, metadata=DISABLED if marked == name else {})
        for name, names, of_class in ((OLD, old, "small"), (NEW, new, "big"))
        if names or kind == "InPlaceUpdate"
    }

    def facts(name: str) -> Any:
        labels, phase = {"name": "pool", "node": name}, "InPlaceUpdating" if name in down else "Running"
        return machine(name, phase, labels=labels, version="1", update="UpdateSuccessful")

    machines = {one.uid: tuple(map(facts, {OLD: old, NEW: new}[name])) for name, one in sets.items()}
    return State(of, deployments.checked(of), tuple(sets.values()), machines)


def run(api: MachineApi, of: State) -> DeploymentRun:
    """A run whose sets and machines are in the API."""
    for one in [one for owned in of.machines.values() for one in owned]:
        api.add(MACHINES, Object({"metadata": {"name": one.name, "labels": one.labels}}))
    sets = tuple(MachineSet(api.add(MACHINE_SETS, one.object)) for one in of.sets)
    return api.run(replace(of, sets=sets))


def node(name: str, labels: dict[str, str] | None = None, status: Any = None, **spec: Any) -> Object:
    return Object({"metadata": {"name": name, "labels": labels or {}}, "spec": spec, "status": status or {}})


def api_with(*nodes: str, labels: dict[str, str] | None = None, **errors: Exception) -> MachineApi:
    """An API with nodes that are tainted as those of old sets."""
    api = MachineApi(errors)
    for name in nodes:
        api.add(NODES, node(name, labels, taints=[MARK]))
    return api


@cases(
    "found nodes names",
    ("the-first", rolled("abc"), ALL, ["a"]),
    ("one-is-selected", rolled("abc"), {**ALL, "a": SELECTED}, []),
    ("one-is-updated", rolled("abc", down="a"), {**ALL, "a": SELECTED}, []),
    ("one-does-not-serve", rolled("abc", down="c"), ALL, []),
    ("two-at-once", rolled("abc", unavailable=2), ALL, ["a", "b"]),
    ("all-at-once", rolled("abc", unavailable=3), ALL, ["a", "b", "c"]),
    ("another-beside-the-selected", rolled("abc", unavailable=2), {**ALL, "a": SELECTED}, ["b"]),
    ("one-has-been-handed-over", rolled("bc", "n"), ALL, ["b"]),
    ("whose-node-takes-no-pods-yet", rolled("bc", "n"), {**ALL, "n": SELECTED}, []),
    ("with-a-surge", rolled("abc", "n"), ALL, ["a", "b"]),
    ("no-candidate-yet", rolled("abc"), {"a": {}, "b": CANDIDATE}, ["b"]),
    ("no-nodes", rolled("abc"), {}, []),
)
@rule("C10")
def test_no_more_nodes_are_selected_than_may_be_unavailable(
    found: State, nodes: dict[str, dict[str, str]], names: list[str]
) -> None:
    live = {name: node(name, labels) for name, labels in nodes.items()}
    assert found.new
    assert inplaceupdate.selectable(found, found.new, live) == names


@rule("C10")
def test_an_updated_node_takes_pods_again() -> None:
    labels = {**SELECTED, keys.UPDATE_RESULT: "successful", "team": "blue"}
    dedicated = {"key": "dedicated", "effect": "NoSchedule"}
    found = node("a", labels, unschedulable=True, taints=[MARK, dedicated])
    assert inplaceupdate.updated(found) == {}, "the condition does not say so yet"
    ready = {"key": keys.CRITICAL_COMPONENTS, "value": "", "effect": "NoSchedule"}
    assert inplaceupdate.updated(Object({**found.raw, "status": SAID})) == {
        "metadata": {
            "labels": {keys.CANDIDATE: None, keys.SELECTED: None, keys.UPDATE_RESULT: None},
            "annotations": {keys.UPDATE_FAILED_REASON: None},
        },
        "spec": {"unschedulable": None, "taints": [dedicated, ready]},
    }


def test_a_rollback_unmarks_candidates() -> None:
    found = node("a", CANDIDATE)
    marked = Object({**found.raw, "spec": inplaceupdate.candidate(found)["spec"]})
    assert inplaceupdate.candidate(marked) == {}
    assert inplaceupdate.no_candidate(marked) == {
        "metadata": {"labels": {keys.CANDIDATE: None}},
        "spec": {"taints": None},
    }
    assert inplaceupdate.no_candidate(node("a", SELECTED)) == {}, "it may be emptied already"


@rule("C10-R3", "C10-R4", "L36")
def test_a_handed_over_machine_gets_labels_and_class_of_the_new_set() -> None:
    labels = {"name": "pool", keys.TEMPLATE_HASH: "1", "old": "x"}
    old = machine_set("pool-a", spec={"template": {"metadata": {"labels": labels}}})
    new = machine_set("pool-bb", class_name="big")
    patch = inplaceupdate.handed_over(machine("m"), old, new)
    assert patch["metadata"]["uid"] == "uid-m"
    assert patch["metadata"]["ownerReferences"][0]["uid"] == "uid-pool-bb"
    assert patch["metadata"]["labels"] == {
        "name": "pool",
        keys.TEMPLATE_HASH: None,
        "old": None,
        keys.UPDATE_RESULT: "successful",
    }
    assert patch["spec"] == {"class": {"kind": "MachineClass", "name": "big"}}


@rule("C10")
@pytest.mark.parametrize("kind", ["InPlaceUpdate", "RollingUpdate", "Recreate"])
async def test_a_set_loses_the_marks_of_an_old_set_when_its_template_returns(kind: str) -> None:
    api = api_with("x", "y", "z", labels=CANDIDATE)
    await deploymentreconciler.advance(run(api, rolled("", "xyz", kind=kind, marked=NEW)))
    assert keys.SCALE_UP_DISABLED not in api.stored[f"{MACHINE_SETS.id} {NEW}"].labels
    for name in "xyz":
        assert keys.CANDIDATE not in api.node(name).labels
        assert not api.node(name).spec.get("taints")


async def test_an_unreachable_api_server_gets_one_request() -> None:
    api = api_with("a", "b", "c", Node=Unreachable("no answer"))
    step = run(api, rolled("abc"))
    await deploymentreconciler.advance(step)
    assert api.asked.count("Node a") == 1
    assert not {"Node b", "Node c"} & set(api.asked)
    assert isinstance(step.node_error, Unreachable), "the run ends, with a status, and is tried again later"


@cases(
    "kind error again",
    ("conflict", "Node", Conflict("changed"), 1.0),
    ("forbidden", "Node", PermanentError("forbidden"), None),
    ("nodes-cannot-be-listed", "NodeList", Unreachable("no answer"), None),
)
async def test_only_node_conflicts_are_retried_soon(
    kind: str, error: TransientError | PermanentError, again: float | None
) -> None:
    step = run(api_with("a", labels={}, **{kind: error}), rolled("a", "xy", marked=OLD))
    await inplaceupdate.update(step)
    assert step.again == again
    assert (step.node_error is error) is (again is None), "a later run retries, with backoff"


@rule("C10")
async def test_a_handed_over_machine_is_not_counted_twice() -> None:
    api = MachineApi()
    api.add(NODES, node("a", {**SELECTED, keys.UPDATE_RESULT: keys.SUCCESSFUL}, SAID, taints=[MARK]))
    step = run(api, rolled("ab", "x", marked=OLD))
    await api.merge(MACHINES, "", "a", {"metadata": {"labels": {"handed": "over"}}})
    with pytest.raises(Conflict):
        await inplaceupdate.update(step)
    sizes = {name: api.stored[f"{MACHINE_SETS.id} {name}"].spec["replicas"] for name in (OLD, NEW)}
    assert sizes == {OLD: 2, NEW: 1}


@rule("C10")
@pytest.mark.parametrize(("replicas", "sizes"), [(9, (3, 2)), (3, (1, 2)), (1, (0, 1)), (0, (0, 0))])
async def test_an_update_continues_after_scaling(replicas: int, sizes: tuple[int, int]) -> None:
    limits = {"maxSurge": 0, "maxUnavailable": 1}
    of = deployment(replicas, spec={"strategy": {"type": "InPlaceUpdate", "inPlaceUpdate": limits}})
    old = machine_set(OLD, 3, metadata=sized(5, 5))
    new = machine_set(NEW, 2, class_name="big", metadata=sized(5, 5))
    step = run(MachineApi(), state(of, old, new))
    assert setsizes.is_scaling(step.state)
    await deploymentreconciler.advance(step)
    assert tuple(one.wanted for one in step.state.sets) == sizes
    assert not setsizes.is_scaling(step.state)
