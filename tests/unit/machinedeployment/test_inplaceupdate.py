"""In-place updates: the selection and the patches of nodes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.machinefacts import deployment, machine, machine_set
from tests.support.rules import rule
from windowbox.models import machinekeys as keys
from windowbox.models.objects import Object
from workers.machines import deployments
from workers.machines.deployment import inplaceupdate
from workers.machines.deployment.deploymentstate import State

CANDIDATE, SELECTED = {keys.CANDIDATE: "true"}, {keys.CANDIDATE: "true", keys.SELECTED: "true"}
NODES = {"a": CANDIDATE, "b": CANDIDATE, "c": CANDIDATE, "n": {}}


def state(
    old: str, new: str = "", *, unavailable: int = 1, down: str = "", manual: bool = False
) -> tuple[State, Any]:
    """A deployment of three machines; `old` and `new` name the machines of its sets."""
    kind = "Manual" if manual else "Auto"
    limits = {"maxSurge": 0, "maxUnavailable": unavailable, "orchestrationType": kind}
    of = deployment(spec={"strategy": {"type": "InPlaceUpdate", "inPlaceUpdate": limits}})
    before = machine_set("pool-a", len(old))
    after = machine_set("pool-bb", len(new), class_name="big")
    machines = {
        one.uid: tuple(
            machine(name, "InPlaceUpdating" if name in down else "Running", labels={"node": name})
            for name in names
        )
        for one, names in ((before, old), (after, new))
    }
    return State(of, deployments.checked(of), (before, after), machines), after


def node(name: str, labels: dict[str, str], **spec: Any) -> Object:
    return Object({"metadata": {"name": name, "labels": labels}, "spec": spec})


@pytest.mark.parametrize(
    ("found", "nodes", "names"),
    [
        pytest.param(state("abc"), NODES, ["a"], id="the-first"),
        pytest.param(state("abc"), {**NODES, "a": SELECTED}, [], id="one-is-selected"),
        pytest.param(state("abc", down="a"), {**NODES, "a": SELECTED}, [], id="one-is-updated"),
        pytest.param(state("abc", down="c"), NODES, [], id="one-does-not-serve"),
        pytest.param(state("abc", unavailable=2), NODES, ["a", "b"], id="two-at-once"),
        pytest.param(state("abc", unavailable=3), NODES, ["a", "b", "c"], id="all-at-once"),
        pytest.param(
            state("abc", unavailable=2), {**NODES, "a": SELECTED}, ["b"], id="another-beside-the-selected"
        ),
        pytest.param(state("bc", "n"), NODES, ["b"], id="one-has-been-handed-over"),
        pytest.param(state("bc", "n"), {**NODES, "n": SELECTED}, [], id="whose-node-takes-no-pods-yet"),
        pytest.param(state("abc", "n"), NODES, ["a", "b"], id="with-a-surge"),
        pytest.param(state("abc"), {"a": {}, "b": CANDIDATE}, ["b"], id="no-candidate-yet"),
        pytest.param(state("abc"), {}, [], id="no-nodes"),
    ],
)
@rule("C10")
def test_no_more_nodes_are_selected_than_may_be_unavailable(
    found: tuple[State, Any], nodes: dict[str, dict[str, str]], names: list[str]
) -> None:
    live = {name: node(name, labels) for name, labels in nodes.items()}
    assert inplaceupdate.selectable(*found, live) == names


@rule("C10")
def test_an_updated_node_takes_pods_again() -> None:
    labels = {**SELECTED, keys.UPDATE_RESULT: "successful", "team": "blue"}
    mark = {"key": keys.PREFER_NO_SCHEDULE, "value": "True", "effect": "PreferNoSchedule"}
    dedicated = {"key": "dedicated", "effect": "NoSchedule"}
    found = node("a", labels, unschedulable=True, taints=[mark, dedicated])
    assert inplaceupdate.updated(found) == {}, "the condition does not say so yet"
    said = {"conditions": [{"type": "InPlaceUpdate", "reason": "UpdateSuccessful"}]}
    ready = {"key": keys.CRITICAL_COMPONENTS, "value": "", "effect": "NoSchedule"}
    assert inplaceupdate.updated(Object({**found.raw, "status": said})) == {
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
