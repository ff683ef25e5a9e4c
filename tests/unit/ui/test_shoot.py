"""A Shoot as a tree, by pure functions."""

from __future__ import annotations

import re
import time
from random import Random
from typing import Any

import pytest

from bus import subjects
from tests.support.hostile import values
from ui.health import Health
from ui.mirror import LastRun, Later
from ui.rendering import Renderer
from ui.views import shoot, shoots
from ui.views.shoot import Node, Tree
from ui.views.table import VIEWS
from windowbox.models.objects import Object
from windowbox.models.refs import (
    CLUSTERS,
    CONTROL_PLANES,
    INFRASTRUCTURES,
    MACHINE_DEPLOYMENTS,
    MACHINE_SETS,
    MACHINES,
    NODES,
    OPERATING_SYSTEM_CONFIGS,
    SERVICES,
    WORKERS,
    ObjectRef,
    Resource,
)
from workers.machines import names

NOW = 1_000_000.0
NAMESPACE = "shoot--local--demo"
RUNNING: dict[str, Any] = {"currentStatus": {"phase": "Running"}}
WHY = "its kubelet reports no node"


def ref(kind: Resource, name: str) -> ObjectRef:
    return ObjectRef("runtime", kind.id, NAMESPACE, name)


def part(kind: Resource, name: str, owner: str = "", **body: Any) -> tuple[ObjectRef, Object]:
    metadata: dict[str, Any] = {"name": name, "uid": name} | body.pop("metadata", {})
    if owner:
        metadata["ownerReferences"] = [{"uid": owner}]
    return ref(kind, name), Object({"metadata": metadata, **body})


def machines(second: dict[str, Any], ready: int) -> dict[ObjectRef, Object]:
    """A Worker with two machines, the second of which has this status."""
    scale: dict[str, Any] = {"spec": {"replicas": 2}, "status": {"readyReplicas": ready}}
    return dict(
        [
            part(INFRASTRUCTURES, "demo"), part(CONTROL_PLANES, "demo-plane"), part(WORKERS, "demo-worker"),
            part(MACHINE_DEPLOYMENTS, "a", **scale), part(MACHINE_SETS, "a-1", "a", **scale),
            part(MACHINES, "a-1-x", "a-1", status=RUNNING), part(MACHINES, "a-1-y", "a-1", status=second),
        ]
    )  # fmt: skip


def told(objects: dict[ObjectRef, Object], *runs: LastRun, due: float = 0.0) -> Tree:
    ill = {(run.pool, subjects.key(run.ref)): run for run in runs}
    later = {place: Later(due, NOW, "", False) for place in ill}
    return shoot.model(NAMESPACE, objects, ill, later, NOW)


def drawn(node: Node, depth: int = 0) -> list[str]:
    """The tree as lines: what is waited for has a `!`, what blocks has two."""
    mark = "!!" if node.blocks else "!" if node.awaited else ""
    return [
        f"{'  ' * depth}{mark}{node.name}",
        *(line for child in node.children for line in drawn(child, depth + 1)),
    ]


def waits(on: ObjectRef, pool: str, note: str = WHY, *, failed: bool = False) -> LastRun:
    return LastRun(pool, on, failed, note, NOW - 60, 1, NOW - 300, True)


def test_a_machine_that_is_not_ready_blocks_all_above_it() -> None:
    machine, worker = ref(MACHINES, "a-1-y"), ref(WORKERS, "demo-worker")
    found = told(
        machines({"currentStatus": {"phase": "Pending"}}, 1), waits(machine, "machine"),
        waits(worker, "worker", "machines are not ready"), due=NOW + 30,
    )  # fmt: skip
    assert drawn(found.root) == [
        "!shoot--local--demo",
        "  demo",
        "  demo-plane",
        "  !demo-worker",
        "    !a",
        "      !a-1",
        "        !!a-1-y",
        "        a-1-x",
    ]
    [blocker] = found.blockers
    assert (blocker.health, blocker.due) == (Health("busy", WHY, NOW - 300), NOW + 30)
    assert (found.count, found.ill) == (7, 4)


def test_a_machine_that_has_failed_blocks_nothing_if_its_worker_is_done_without_it() -> None:
    found = told(machines({"currentStatus": {"phase": "Failed"}}, 2))
    assert not found.blockers
    assert [node.name for node in found.root.all() if node.ill] == ["a-1-y"]


def test_what_leaves_says_which_finalizer_holds_it() -> None:
    leaving = {"deletionTimestamp": "1970-01-12T13:00:00Z", "finalizers": ["machine.sapcloud.io/x"]}
    found = told(dict([part(INFRASTRUCTURES, "demo", metadata=leaving)]))
    [blocker] = found.blockers
    assert (blocker.finalizers, blocker.health.since) == (("machine.sapcloud.io/x",), 997_200.0)


def test_all_is_well_if_every_part_is() -> None:
    found = told(machines(RUNNING, 2))
    assert (found.blockers, found.ill, found.root.health.state) == ((), 0, "well")


def test_the_cluster_tells_the_name_of_the_shoot_and_what_it_does() -> None:
    last = {"state": "Processing", "type": "Create", "progress": 40, "description": "Deploying the Worker"}
    body = {"metadata": {"name": "demo", "namespace": "garden-local"}, "status": {"lastOperation": last}}
    cluster = ObjectRef("runtime", CLUSTERS.id, "", NAMESPACE), Object({"spec": {"shoot": body}})
    root = told(dict([cluster, part(INFRASTRUCTURES, "demo")])).root
    assert (root.name, root.facts) == ("demo", "garden-local")
    assert root.health == Health("busy", "Create 40 %: Deploying the Worker")
    assert len(root.children) == 1


def test_nodes_are_below_their_machines_and_other_services_are_no_parts() -> None:
    node = ObjectRef(NAMESPACE, NODES.id, "", names.pod("a-1-x"))
    objects = machines(RUNNING, 2) | dict([part(SERVICES, "etcd", spec={"type": "ClusterIP"})])
    found = told(objects | {node: Object({"metadata": {"name": node.name}})})
    [machine] = [one for one in found.root.all() if one.name == "a-1-x"]
    assert [child.ref for child in machine.children] == [node]
    assert "etcd" not in {one.name for one in found.root.all()}


def test_owners_in_a_circle_do_no_harm() -> None:
    found = told(dict([part(MACHINE_SETS, "a", "b"), part(MACHINE_SETS, "b", "a"), part(MACHINES, "c", "c")]))
    assert {one.name for one in found.root.children} == {"a", "b", "c"}


def test_what_is_not_well_is_never_among_those_that_are_left_out() -> None:
    many = dict(part(OPERATING_SYSTEM_CONFIGS, f"o-{number:03}") for number in range(99))
    last = ref(OPERATING_SYSTEM_CONFIGS, "o-098")
    group = told(many, waits(last, "operatingsystemconfig", failed=True)).root
    assert group.children[0].ref == last
    assert (len(group.children), group.omitted) == (13, 86)


@pytest.mark.parametrize("seed", range(60))
def test_hostile_objects_break_nothing(seed: int) -> None:
    chance = Random(seed)
    objects = {}
    for kind in (WORKERS, MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES, SERVICES, INFRASTRUCTURES):
        text = chance.choice(values.TEXTS).encode(errors="replace").decode()
        body = {field: values.anything(chance) for field in ("spec", "status")}
        owners = chance.choice([[{"uid": "u"}], values.anything(chance)])
        metadata = {"uid": "u", "ownerReferences": owners, "name": text}
        objects[ref(kind, text)] = Object({"metadata": metadata, **body})
    found = shoot.model(NAMESPACE, objects, {}, {}, NOW)
    html = Renderer(VIEWS, time.time).view(shoot.VIEW, {"namespace": NAMESPACE}, {"model": found})
    assert not re.search(r"<script|\u202e|\u2028|\x1b|\x00", html)


def test_namespaces_with_an_infrastructure_are_shoots_and_the_worst_comes_first() -> None:
    other = ObjectRef("runtime", SERVICES.id, "shop", "web")
    well = ObjectRef("runtime", INFRASTRUCTURES.id, "shoot--local--b", "b")
    found = shoots.model(
        [(other, Health("failed")), (well, Health("well")), (ref(WORKERS, "a"), Health("busy"))],
        [waits(ref(WORKERS, "a"), "worker")],
    )
    assert found.rows[0].worst == Health("busy", WHY, NOW - 300)
    assert [(row.namespace, row.worst.state, row.ill) for row in found.rows] == [
        (NAMESPACE, "busy", 1), ("shoot--local--b", "well", 0)
    ]  # fmt: skip
