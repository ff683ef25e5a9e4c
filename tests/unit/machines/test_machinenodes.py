"""The patches of a Machine's node, and the drain of its Pods."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from tests.support.cases import cases
from tests.support.rules import rule
from tests.unit.machines.samples import NOW, TIMEOUTS, ago, machine, node, spelled
from windowbox.models.objects import Object
from workers.machines.machine import machinenodes, nodedrain
from workers.machines.machine.machinespecs import Timeouts
from workers.machines.machine.nodedrain import Mode

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
def test_one_patch_brings_labels_taints_and_finalizer() -> None:
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


def test_large_conditions_are_shortened_in_a_status() -> None:
    def conditions(count: int, length: int) -> list[dict[str, Any]]:
        said = {"status": "False", "reason": "r" * length, "message": "m" * length}
        return [{"type": f"Problem{number:02}", **said} for number in range(count)]

    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "posting"}
    usual = [*conditions(20, 40), ready]
    assert machinenodes.bounded(usual) == usual
    shortened = machinenodes.bounded([*conditions(20, 300)[:10], ready])
    assert [one["type"] for one in shortened] == [f"Problem{n:02}" for n in range(10)] + ["Ready"]
    assert {len(one["message"]) for one in shortened} == {100, len("posting")}
    hostile = Object({"status": {"conditions": [*conditions(63, 100_000), ready]}})
    found = machinenodes.bounded(machinenodes.conditions(hostile))
    assert found[-1] == ready
    assert 4 <= len(found) < 10
    assert len(json.dumps(found)) < 6100


@rule("B10-R2")
def test_only_applied_entries_are_removed_from_a_node() -> None:
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


@rule("B10-R2", "B10-R4")
def test_a_drifted_taint_is_corrected_and_applied_entries_are_noted() -> None:
    wanted = machine(nodeTemplate=template(taints=[TAINT], labels={"b": "1", "a": "2"}))
    patch = machinenodes.sync_patch(wanted, node(taints=[{**TAINT, "value": "other"}]))
    assert patch
    assert patch["spec"]["taints"] == [TAINT]
    noted = json.loads(patch["metadata"]["annotations"][APPLIED])
    assert noted == {"metadata": {"labels": {"a": "2", "b": "1"}}, "spec": {"taints": [TAINT]}}


def test_invalid_annotations_and_templates_of_nodes_are_ignored() -> None:
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


NORMAL, FORCED = Mode(False, False), Mode(True, True)


def guest(
    name: str, *, claim: bool = False, priority: int = 0, phase: str = "Running", **metadata: Any
) -> Object:
    volumes = [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}] if claim else []
    spec = {"volumes": volumes, "priority": priority}
    return Object({"metadata": {"name": name, **metadata}, "spec": spec, "status": {"phase": phase}})


def names(pods: Any) -> list[str]:
    return [pod.name for pod in pods]


@rule("B12-R5")
def test_daemon_static_and_ended_pods_stay() -> None:
    of_set: dict[str, Any] = {"ownerReferences": [{"kind": "DaemonSet", "controller": True}]}
    of_other: dict[str, Any] = {"ownerReferences": [{"kind": "ReplicaSet", "controller": True}]}
    mirror: dict[str, Any] = {"annotations": {"kubernetes.io/config.mirror": "x"}}
    pods = [
        guest("plain"),
        guest("daemon", **of_set),
        guest("static", **mirror),
        guest("owned", **of_other),
        guest("done", phase="Succeeded"),
    ]
    assert names(nodedrain.candidates(pods)) == ["plain", "owned"]


def test_an_ended_pod_that_its_kubelet_is_about_to_remove_is_awaited() -> None:
    deleted: dict[str, Any] = {"phase": "Failed", "deletionTimestamp": "2026-08-21T11:00:00Z"}
    pods = [
        guest("ended", **deleted),
        guest("held", **deleted, finalizers=["batch.kubernetes.io/job-tracking"]),
    ]
    assert names(nodedrain.candidates(pods)) == ["ended"]
    step = nodedrain.next_step(nodedrain.candidates(pods), NORMAL, evicting=True)
    assert (names(step.evict), names(step.delete), names(step.waiting)) == ([], [], ["ended"])


@rule("B12-R6")
def test_pods_with_volumes_leave_one_after_the_other() -> None:
    high, low = guest("high", claim=True, priority=9), guest("low", claim=True, priority=1)
    step = nodedrain.next_step([guest("a"), high, low, guest("b")], NORMAL, evicting=True)
    assert names(step.evict) == ["a", "b", "low"]
    assert names(step.waiting) == ["high"]
    leaving = guest("low", claim=True, deletionTimestamp="x")
    step = nodedrain.next_step([leaving, guest("high", claim=True)], NORMAL, evicting=True)
    assert names(step.evict) == []
    assert names(step.waiting) == ["low", "high"]


@rule("B12-R2", "B12-R7")
def test_pods_are_deleted_by_force_or_after_the_last_eviction() -> None:
    leaving = guest("x", deletionTimestamp="x")
    assert names(nodedrain.next_step([guest("a"), leaving], FORCED, evicting=True).delete) == ["a", "x"]
    late = nodedrain.next_step([guest("a"), leaving], NORMAL, evicting=False)
    assert (names(late.delete), names(late.waiting)) == (["a"], ["x"])
    assert nodedrain.next_step([], NORMAL, evicting=True).done


def sick(type: str, status: str, seconds: float) -> Object:
    condition = {"type": type, "status": status, "lastTransitionTime": spelled(ago(seconds))}
    return Object({"metadata": {"name": "n"}, "status": {"conditions": [condition]}})


@cases(
    "labels found asked forced",
    ("B12-R1+normal", {}, node(Ready="True"), 60, False),
    ("B12-R1+label", {"force-deletion": "True"}, None, 1, True),
    ("B12-R1+other-label", {"force-deletion": "false"}, None, 1, False),
    ("B12-R1+timeout", {}, None, 7201, True),
    ("B12-R1+not-ready", {}, sick("Ready", "Unknown", 301), 1, True),
    ("B12-R1+not-ready-for-long", {}, sick("Ready", "Unknown", 299), 1, False),
    ("B12-R1+ready", {}, sick("Ready", "True", 9999), 1, False),
    ("B12-R1+read-only", {}, sick("ReadonlyFilesystem", "True", 301), 1, True),
)
def test_some_drains_are_forced(labels: Any, found: Object | None, asked: float, forced: bool) -> None:
    machine = Object({"metadata": {"labels": labels}})
    assert nodedrain.mode(machine, found, TIMEOUTS, ago(asked), NOW).forced is forced


@cases(
    "timeout tries retries",
    ("B12-R2", 3600.0, 30, 30),
    ("B12-R2+timeout", 600.0, 360, 30),
    ("B12-R2+default", 7200.0, 360, 360),
)
def test_evictions_end_after_their_retries(timeout: float, tries: int, retries: int) -> None:
    timeouts = Timeouts(1.0, None, timeout, 1.0, tries, ())
    assert nodedrain.evicted_until(NOW, timeouts) == NOW + timedelta(seconds=20 * retries)
