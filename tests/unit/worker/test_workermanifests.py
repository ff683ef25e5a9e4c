"""The replicas and the patch of a MachineDeployment."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import workerexample as example
from tests.support.rules import rule
from tests.support.workerexample import pool, worker
from windowbox.models.objects import Object, merge
from workers.machines.worker import workermanifests

SCALED = worker(pool(minimum=2, maximum=5))
AT = example.site(SCALED)


def found(replicas: int = 2, **spec: Any) -> Object:
    [group] = example.groups(SCALED)
    made = workermanifests.deployment(group, AT, replicas)
    return Object(merge(made, {"spec": spec}))


@pytest.mark.parametrize(
    ("there", "flags", "replicas"),
    [
        pytest.param(4, {"hibernated": True}, 0, id="A9-1-hibernated"),
        pytest.param(4, {"scaled": False}, 2, id="A9-2-nothing-is-scaled"),
        pytest.param(None, {}, 2, id="A9-3-new"),
        pytest.param(0, {"awake": True}, 2, id="A9-4-awake"),
        pytest.param(1, {}, 2, id="A9-5-too-few"),
        pytest.param(9, {}, 5, id="A9-6-too-many"),
        pytest.param(4, {}, 4, id="A9-7-as-the-autoscaler-says"),
        pytest.param(4, {"awake": True}, 4, id="A9-R1-one-that-nobody-had-seen-is-not-shrunk"),
    ],
)
def test_replicas(there: int | None, flags: dict[str, bool], replicas: int) -> None:
    [group] = example.groups(SCALED)
    flags = {"hibernated": False, "scaled": True, "awake": False} | flags
    before = None if there is None else found(there)
    assert workermanifests.replicas(group, before, **flags) == replicas


@rule("A9-R4")
def test_limits_are_those_of_the_zone() -> None:
    first, second = example.groups(worker(pool(minimum=3, maximum=5, zones=["a", "b"])))
    nine = found(9)
    flags = {"hibernated": False, "scaled": True, "awake": False}
    assert [workermanifests.replicas(group, nine, **flags) for group in (first, second)] == [3, 2]


@rule("A9-R2")
def test_a_pool_of_fixed_size_beside_one_that_is_scaled_keeps_its_size() -> None:
    [group] = example.groups(worker(pool(minimum=2, maximum=2)))
    flags = {"hibernated": False, "scaled": True, "awake": False}
    assert [workermanifests.replicas(group, found(n), **flags) for n in (1, 2, 3)] == [2, 2, 2]


def test_fields_of_other_clients_stay() -> None:
    before = found(paused=True, progressDeadlineSeconds=5, rollbackTo={"revision": 1})
    before = Object(
        merge(
            before.raw,
            {
                "metadata": {
                    "labels": {"mine": "x"},
                    "annotations": {"deployment.kubernetes.io/revision": "3"},
                },
                "spec": {"template": {"metadata": {"annotations": {"kept": "y"}}}},
            },
        )
    )
    [group] = example.groups(SCALED)
    assert workermanifests.deployment_patch(before, group, AT, 2) == {}
    assert workermanifests.deployment_patch(before, group, AT, 3) == {"spec": {"replicas": 3}}


def test_settings_that_a_pool_has_lost_are_removed() -> None:
    asked = worker(
        pool(
            labels={"a": "1", "b": "2"},
            taints=[{"key": "k", "effect": "NoSchedule"}],
            clusterAutoscaler={"maxNodeProvisionTime": "30m0s"},
            machineControllerManager={
                "machineDrainTimeout": "1h0m0s",
                "nodeConditions": ["A", "B"],
                "autoPreserveFailedMachineMax": 1,
            },
        )
    )
    [before] = example.groups(asked)
    made = Object(workermanifests.deployment(before, AT, 1))
    assert made.annotations == {"autoscaler.gardener.cloud/max-node-provision-time": "30m0s"}
    assert made.spec["template"]["spec"]["nodeConditions"] == "A,B"
    [after] = example.groups(worker(pool(labels={"a": "1"})))
    assert workermanifests.deployment_patch(made, after, AT, 1) == {
        "metadata": {"annotations": {"autoscaler.gardener.cloud/max-node-provision-time": None}},
        "spec": {
            "autoPreserveFailedMachineMax": None,
            "template": {
                "spec": {
                    "drainTimeout": None,
                    "nodeConditions": None,
                    "nodeTemplate": {"metadata": {"labels": {"b": None}}, "spec": {"taints": None}},
                }
            },
        },
    }


@rule("A10-R4")
def test_a_change_to_in_place_updates_changes_label_and_strategy() -> None:
    [before] = example.groups(worker(pool()))
    [after] = example.groups(worker(pool(updateStrategy="AutoInPlaceUpdate")))
    made = Object(workermanifests.deployment(before, AT, 1))
    patch = workermanifests.deployment_patch(made, after, AT, 1)["spec"]
    assert patch["strategy"]["rollingUpdate"] is None
    assert patch["strategy"]["type"] == "InPlaceUpdate"
    assert patch["template"]["metadata"]["labels"] == {"worker.gardener.cloud/name": "demo"}


@pytest.mark.parametrize(
    ("before", "after", "patch"),
    [
        pytest.param({"a": 1}, {"a": 1}, {}, id="same"),
        pytest.param({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, {"a": {"c": None}}, id="less"),
        pytest.param({"a": {"b": 1}}, {"a": [1]}, {"a": [1]}, id="another-type"),
        pytest.param({}, {"a": {}}, {"a": {}}, id="empty"),
        pytest.param({"a": None}, {}, {"a": None}, id="null"),
    ],
)
def test_differences(before: dict[str, Any], after: dict[str, Any], patch: dict[str, Any]) -> None:
    assert workermanifests.difference(before, after) == patch
    assert merge(before, patch) == after
