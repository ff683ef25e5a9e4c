"""The labels, annotations and taints that a Machine's node gets."""

from __future__ import annotations

import json
from typing import Any

from tests.support.rules import rule
from tests.unit.machine.samples import machine, node
from windowbox.models.objects import Object
from workers.machines.machine import machinenodes

APPLIED = "node.machine.sapcloud.io/last-applied-anno-labels-taints"
FINALIZER = "node.machine.sapcloud.io/machine-controller"
NAME = "node.gardener.cloud/machine-name"
TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}
FOREIGN = {"key": "k", "value": "w", "effect": "NoExecute"}


def template(*, taints: Any = (), **metadata: Any) -> dict[str, Any]:
    return {"metadata": metadata, "spec": {"taints": list(taints)}}


def after(found: Object, patch: dict[str, Any]) -> Object:
    """The node as the patch leaves it."""
    changes, head = patch["metadata"], dict(found.metadata)
    for kind in ("labels", "annotations"):
        merged = {**head.get(kind, {}), **changes.get(kind, {})}
        head[kind] = {name: value for name, value in merged.items() if value is not None}
    head["finalizers"] = list(dict.fromkeys([*found.finalizers, *changes.get("finalizers", [])]))
    return Object({**found.raw, "metadata": head, "spec": {**found.spec, **patch.get("spec", {})}})


@rule("B10-R1", "B10-R2", "B10-R5")
def test_one_patch_puts_everything_there() -> None:
    wanted = machine(nodeTemplate=template(taints=[TAINT], labels={"team": "blue"}, annotations={"a": "b"}))
    found = node(taints=[FOREIGN])
    patch = machinenodes.sync_patch(wanted, found)
    assert patch
    assert patch["metadata"]["labels"] == {"team": "blue", NAME: "a"}
    assert patch["metadata"]["annotations"]["a"] == "b"
    assert patch["metadata"]["finalizers"] == [FINALIZER]
    assert patch["metadata"]["resourceVersion"] == "7"
    assert patch["spec"] == {"taints": [FOREIGN, TAINT]}
    assert machinenodes.sync_patch(wanted, after(found, patch)) is None


@rule("B10-R2")
def test_only_what_was_put_there_is_taken_away() -> None:
    before = machine(nodeTemplate=template(taints=[TAINT], labels={"team": "blue", "old": "1"}))
    found = node(taints=[FOREIGN], metadata={"labels": {"foreign": "1"}})
    patch = machinenodes.sync_patch(before, found)
    assert patch
    there = after(found, patch)
    patch = machinenodes.sync_patch(machine(nodeTemplate=template(labels={"team": "red"})), there)
    assert patch
    assert patch["metadata"]["labels"] == {"team": "red", "old": None}
    left = after(there, patch)
    assert left.labels == {"team": "red", "foreign": "1", NAME: "a"}
    assert left.spec["taints"] == [FOREIGN]


@rule("B10-R2")
def test_the_value_of_a_taint_is_put_right() -> None:
    wanted = machine(nodeTemplate=template(taints=[TAINT]))
    patch = machinenodes.sync_patch(wanted, node(taints=[{**TAINT, "value": "other"}]))
    assert patch
    assert patch["spec"]["taints"] == [TAINT]


@rule("B10-R4")
def test_what_was_put_there_is_remembered() -> None:
    patch = machinenodes.sync_patch(machine(nodeTemplate=template(labels={"b": "1", "a": "2"})), node())
    assert patch
    remembered = json.loads(patch["metadata"]["annotations"][APPLIED])
    assert remembered == {"metadata": {"labels": {"a": "2", "b": "1"}}, "spec": {}}


def test_nonsense_in_bookkeeping_and_template_does_no_harm() -> None:
    found = node(metadata={"annotations": {APPLIED: "[" * 100_000}})
    patch = machinenodes.sync_patch(
        machine(nodeTemplate={"metadata": {"labels": {"a": 5, "b": "1"}}, "spec": 3}), found
    )
    assert patch
    assert patch["metadata"]["labels"] == {"b": "1", NAME: "a"}


@rule("B10-R7")
def test_heartbeats_of_a_node_are_no_change() -> None:
    first, later = node(Ready="True"), node(Ready="True")
    later.raw["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-08-21T11:00:00Z"
    assert machinenodes.compared(first) == machinenodes.compared(later)
    assert machinenodes.compared(first) != machinenodes.compared(node(Ready="False"))
