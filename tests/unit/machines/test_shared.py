"""Shared by the pools: names, templates, the Lease, the clusters of nodes, and moves to another seed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.support.cases import cases
from tests.support.machineapi import LEASE, MachineApi, lease
from tests.support.machinefacts import template
from tests.support.rules import rule
from windowbox.errors import LeaseLost
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINE_SETS, MACHINES, NODES, RUNTIME, ObjectRef
from workers.machines import deployments, names, templates
from workers.machines.deployment.deploymentrun import DeploymentRun
from workers.machines.deployment.deploymentstate import State
from workers.machines.moving import is_leaving, moves
from workers.machines.nodes import Nodes


@cases(
    "digits end",
    ("C3-R1-3184902675", "3184902675", "75d8f"),
    ("C3-R1-2718281828", "2718281828", "6c5d6"),
    ("C3-R1-1059773341", "1059773341", "549fc"),
    ("C3-R1-4021876530", "4021876530", "8465d"),
)
def test_a_set_is_named_by_its_template(digits: str, end: str) -> None:
    assert names.set_name("pool", digits) == f"pool-{end}"


@rule("C3-R3", "C3-R4")
def test_the_hash_depends_on_content_alone() -> None:
    one = {"spec": {"class": {"name": "small"}}, "metadata": {"labels": {"a": "1", "b": "2"}}}
    same = {"metadata": {"labels": {"b": "2", "a": "1"}}, "spec": {"class": {"name": "small"}}}
    assert names.template_hash(one) == names.template_hash(same)
    assert names.template_hash(one).isdecimal()
    assert int(names.template_hash(one)) < 2**32
    # After a collision.
    assert names.template_hash(template()) != names.template_hash(template(), 1)


@rule("C3-R5")
def test_names_of_machines_are_unique_and_repeatable() -> None:
    found = {names.machine_name("pool-75d8f", "uid", number) for number in range(1000)}
    assert len(found) > 990
    assert all(len(name) == len("pool-75d8f-") + 5 for name in found)
    assert names.machine_name("pool-75d8f", "uid", 7) == names.machine_name("pool-75d8f", "uid", 7)
    assert names.machine_name("pool-75d8f", "uid", 7) != names.machine_name("pool-75d8f", "other", 7)


@rule("L27")
def test_a_long_name_still_fits_a_service() -> None:
    name = names.machine_name("shoot--project--name-with-30-char-pool-of-15-char-z1-75d8f", "uid", 0)
    assert len(f"machine-{name}") <= 63


@rule("L27", "B4-R8")
@pytest.mark.parametrize("length", [54, 55, 56, 61, 200])
def test_names_fit_a_service_and_stay_unique(length: int) -> None:
    one, other = "a" * length, "a" * (length - 1) + "b"
    assert names.pod(one) == names.pod(one)
    assert names.pod(one) != names.pod(other)
    assert len(names.pod(one)) <= 63
    assert names.pod(one).startswith("machine-aaaa")
    assert (names.pod(one) == f"machine-{one}") == (length <= 55)


@rule("L39", "B8-R8")
def test_token_ids_do_not_collide() -> None:
    ids = {names.token_id(f"uid-{number}") for number in range(20_000)}
    # Ids of three letters would repeat after 19,683; ours differ but for a rare accident.
    assert len(ids) > 19_990
    assert all((len(one) == 6 and one.isalnum() and one.islower()) or one.isdigit() for one in ids)


_NODES: dict[str, Any] = {
    "nodeTemplate": {"metadata": {"labels": {"a": "1"}}, "spec": {"taints": [{"key": "k"}]}}
}


def with_metadata(**metadata: Any) -> dict[str, Any]:
    return {**template(), "metadata": {"labels": {"name": "pool"}, **metadata}}


@cases(
    "other same",
    ("C4-nothing", template(), True),
    ("C4-class", template("big"), False),
    ("C4-labels", with_metadata(labels={"name": "pool", "x": "y"}), False),
    ("C4-hash-label", with_metadata(labels={"name": "pool", "machine-template-hash": "1"}), True),
    ("C4-annotations", with_metadata(annotations={"x": "y"}), False),
    ("C4-null-of-go", with_metadata(creationTimestamp=None), True),
    ("C4-provider-id", template(providerID="x"), False),
    ("C4-node-template", template(**_NODES), True),
    ("C4-configuration", template(drainTimeout="1h", maxEvictRetries=3), True),
    ("C4-kind", {**template(), "spec": {"class": {"kind": "Other", "name": "small"}}}, True),
    (
        "C4-api-group",
        {**template(), "spec": {"class": {"apiGroup": "x", "kind": "MachineClass", "name": "small"}}},
        False,
    ),
)
def test_some_changes_replace_machines(other: dict[str, Any], same: bool) -> None:
    assert templates.same(template(), other) is same


@rule("C4")
def test_a_copied_template_removes_former_fields() -> None:
    found = template(drainTimeout="1h", nodeTemplate={"metadata": {"labels": {"a": "1", "b": "2"}}})["spec"]
    patch = templates.differences(found, template(**_NODES, healthTimeout="5m"))
    assert patch == {
        "drainTimeout": None,
        "healthTimeout": "5m",
        "nodeTemplate": {"metadata": {"labels": {"a": "1", "b": None}}, "spec": {"taints": [{"key": "k"}]}},
    }


@rule("C4")
def test_only_the_kind_of_a_class_is_copied() -> None:
    found = {"class": {"kind": "AWSMachineClass", "name": "old", "apiGroup": "x"}}
    assert templates.differences(found, template("new")) == {"class": {"kind": "MachineClass"}}


@cases(
    "cluster namespace nodes_in",
    ("shoot", RUNTIME, "shoot--a--b", "shoot--a--b"),
    ("hosts-itself", RUNTIME, "kube-system", RUNTIME),
    ("namespace-of-another-cluster", "member", "shoot--a--b", "member"),
)
def test_only_runtime_namespaces_name_shoots(cluster: str, namespace: str, nodes_in: str) -> None:
    unused: Any = None
    assert Nodes(unused, ObjectRef(cluster, MACHINES.id, namespace, "m"), unused, unused).cluster == nodes_in


@cases(
    "operation type_ state leaves moving",
    ("A15-R6-asked-for", "migrate", "Reconcile", "Succeeded", True, True),
    ("A15-R6-done", None, "Migrate", "Succeeded", True, True),
    ("A15-R4-awaits-its-state", "wait-for-state", None, None, False, True),
    ("A15-R4-arrives", None, "Restore", "Processing", False, True),
    ("A15-R5-has-arrived", None, "Restore", "Succeeded", False, False),
    ("stays", "reconcile", "Reconcile", "Error", False, False),
)
def test_machines_stay_while_their_worker_is_handed_over(
    operation: str | None, type_: str | None, state: str | None, leaves: bool, moving: bool
) -> None:
    last = {"type": type_, "state": state} if type_ else {}
    annotations = {"gardener.cloud/operation": operation} if operation else {}
    worker = Object(
        {"metadata": {"name": "w", "annotations": annotations}, "status": {"lastOperation": last}}
    )
    assert is_leaving(worker) is leaves
    assert moves(operation, last) is moving


_NODE = Object({"metadata": {"name": "n"}})
_WRITES: dict[str, Callable[[DeploymentRun], Awaitable[Any]]] = {
    "create": lambda run: run.objects.create(MACHINES, {"metadata": {"name": "m"}}),
    "scale": lambda run: run.objects.patch(MACHINE_SETS, "s", {"spec": {"replicas": 1}}),
    "delete": lambda run: run.objects.delete(MACHINES, "m", "u"),
    "node": lambda run: run.nodes.patch(_NODE, {"metadata": {"labels": {"a": "b"}}}),
}

each_write = pytest.mark.parametrize("write", _WRITES.values(), ids=_WRITES.keys())


def _run(api: MachineApi) -> DeploymentRun:
    found = Object({"metadata": {"name": "pool"}, "spec": {"replicas": 1}})
    return api.run(State(found, deployments.lenient(found)))


@each_write
@cases("now", ("deleted", None), ("taken", lease(holder="another")), ("recreated", lease(uid="later")))
async def test_nothing_is_written_without_the_lease(
    write: Callable[[DeploymentRun], Awaitable[Any]], now: Object | None
) -> None:
    api = MachineApi()
    run = _run(api)
    del api.stored[LEASE]
    if now:
        api.stored[LEASE] = now
    with pytest.raises(LeaseLost, match="was deleted or taken"):
        await write(run)
    assert api.asked == ["Lease machine-controller-manager"]


async def test_a_mirrored_lease_costs_no_request() -> None:
    api = MachineApi()
    node = api.add(NODES, _NODE)
    assert await _run(api).nodes.patch(node, {"metadata": {"labels": {"a": "b"}}}) is None
    assert api.asked == ["Node n"]
