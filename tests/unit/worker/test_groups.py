"""The groups of a Worker, and their Secrets, MachineClasses and MachineDeployments."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from clouds.frame import pools
from clouds.frame.pools import Group
from tests.support import workerexample as example
from tests.support.cases import cases
from tests.support.rules import rule
from tests.support.workerexample import pool, worker
from windowbox.errors import Malformed
from windowbox.models.objects import Object, merge
from workers.core.lifecycle.shootfacts import ShootFacts
from workers.machines.worker import workerplan

NODE = "registry.local.gardener.cloud:5001/local-skaffold_gardener-extension-provider-local_node:v1.0.0"


def of_contract() -> tuple[Object, list[Group]]:
    [asked] = example.example("AP1.1")
    return Object(asked), example.groups(Object(asked), example.profile(("1.0.0", NODE)))


def bare(raw: dict[str, Any]) -> dict[str, Any]:
    """The object without fields of other clients."""
    metadata = {k: v for k, v in raw["metadata"].items() if k not in ("finalizers", "generation")}
    annotations = {k: v for k, v in metadata.pop("annotations", {}).items() if "autoscaler" in k}
    metadata |= {"annotations": annotations} if annotations else {}
    return {name: value for name, value in raw.items() if name != "status"} | {"metadata": metadata}


@rule("AP1.2", "A6-R4", "AP1.3", "A6-R6", "A6-R1", "AP1.4", "A6-R7", "A6-R8", "A10-R1")
def test_the_objects_of_a_worker_are_those_of_the_example() -> None:
    asked, groups = of_contract()
    at, secrets, deployments = example.site(asked), example.example("AP1.2"), example.example("AP1.4")
    script = base64.b64decode(secrets[0]["data"]["userData"])
    assert [workerplan.secret(group, at, script) for group in groups] == [bare(one) for one in secrets]
    classes = [workerplan.machine_class(group, at) for group in groups]
    assert classes == [bare(one) for one in example.example("AP1.3")]
    made = [workerplan.deployment(group, at, group.minimum) for group in groups]
    assert made == [bare(one) for one in deployments]
    for found, group in zip(deployments, groups, strict=True):
        assert workerplan.deployment_patch(Object(found), group, at, group.minimum) == {}


@rule("A6-R2", "A6-R3")
def test_zones_are_counted_by_their_order() -> None:
    one, two = example.groups(worker(pool(zones=["b", "a"])))
    assert (one.name, one.zone) == (f"{example.TECHNICAL_ID}-small-z1", "b")
    assert (two.name, two.zone) == (f"{example.TECHNICAL_ID}-small-z2", "a")
    assert one.class_name[-5:] == two.class_name[-5:]
    [region] = example.groups(worker(pool()))
    assert region.zone == "local"


@rule("A7-R3")
def test_a_changed_capacity_changes_the_class_under_its_name() -> None:
    asked = worker(pool())
    large = worker(pool(nodeTemplate={"capacity": {"cpu": "8"}, "virtualCapacity": {"x": "1"}}))
    [before], [after] = example.groups(asked), example.groups(large)
    assert before.class_name == after.class_name
    template = workerplan.machine_class(after, example.site(large))["nodeTemplate"]
    assert template["capacity"] == {"cpu": "8"}
    assert template["virtualCapacity"] == {"x": "1"}


@rule("A6-R6")
def test_a_pool_of_addresses_is_named_for_each_family() -> None:
    asked = worker(pool())
    [group] = example.groups(asked, None, "IPv6", "IPv4")
    assert workerplan.machine_class(group, example.site(asked))["providerSpec"] == {
        "image": example.IMAGE,
        "ipPoolNameV4": f"shoot-machine-pods-{example.TECHNICAL_ID}-ipv4",
        "ipPoolNameV6": f"shoot-machine-pods-{example.TECHNICAL_ID}-ipv6",
        "namespace": f"infra-{example.TECHNICAL_ID}",
    }


def test_a_setting_adds_resources_zone_and_volumes() -> None:
    disks = [{"name": "data", "size": "5Gi"}]
    asked = worker(pool(volume={"size": "20Gi"}, dataVolumes=disks, zones=["a"]))
    [plain], [group] = example.groups(asked), example.groups(asked, resources=True)
    assert plain.provider_spec.keys() == {"image", "ipPoolNameV4", "namespace"}
    spec = group.provider_spec
    amounts = {"cpu": "1", "memory": "8Gi"}
    assert spec["resources"] == {"requests": amounts, "limits": amounts}
    assert spec["zone"] == "a"
    assert spec["volumes"] == [{"name": "root", "size": "20Gi"}, {"name": "data", "size": "5Gi"}]


@rule("A6-R7")
@cases(
    "strategy type_ more",
    ("none", None, "RollingUpdate", {}),
    ("rolling", "AutoRollingUpdate", "RollingUpdate", {}),
    ("in-place", "AutoInPlaceUpdate", "InPlaceUpdate", {"orchestrationType": "Auto"}),
    ("manual", "ManualInPlaceUpdate", "InPlaceUpdate", {"orchestrationType": "Manual"}),
)
def test_strategies(strategy: str | None, type_: str, more: dict[str, str]) -> None:
    asked = worker(pool(updateStrategy=strategy, maxSurge="25%", maxUnavailable=1))
    [group] = example.groups(asked)
    limits, inner = {"maxSurge": "25%", "maxUnavailable": 1, **more}, type_[0].lower() + type_[1:]
    spec = workerplan.deployment(group, example.site(asked), 1)["spec"]
    assert spec["strategy"] == {"type": type_, inner: limits}


@cases(
    "changed words",
    ("A6-R9-type", {"machineType": "huge"}, "machineType of pool 'small'.*'huge'.*add the type"),
    ("A6-R9+L13-node-template", {"nodeTemplate": None}, "nodeTemplate of pool 'small'.*not set"),
    ("A7-R1-agent", {"nodeAgentSecretName": None}, "nodeAgentSecretName of pool"),
    ("image", {"machineImage": None}, "machineImage of pool"),
    ("A8-R6-unknown-image", {"machineImage": {"name": "a", "version": "1"}}, "a/1 neither in"),
    ("minimum", {"minimum": 2}, "minimum and maximum of pool 'small'.*2 and 1"),
    ("maximum", {"maximum": 10001}, "10000"),
    ("zones", {"zones": ["a"] * 33}, "zones of pool 'small'.*33"),
    ("name", {"name": "Small"}, "name of pool 'Small'"),
    ("long-name", {"name": "s" * 60}, "longer than 63"),
    ("surge", {"maxSurge": "lots"}, "maxSurge of pool 'small'.*'lots'"),
    ("unavailable", {"maxUnavailable": -1}, "maxUnavailable of pool 'small'"),
    ("strategy", {"updateStrategy": "Never"}, "updateStrategy.*'Never'"),
    ("user-data", {"userDataSecretRef": {"name": "", "key": "a"}}, "userDataSecretRef"),
    ("type", {"maximum": "many"}, r"spec\.pools\.0\.maximum"),
)
def test_an_invalid_pool_is_a_configuration_problem(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(Malformed, match=words) as raised:
        example.groups(worker(pool(**changed)))
    assert raised.value.codes == ("ERR_CONFIGURATION_PROBLEM",)


@cases(
    "asked words",
    ("twice", worker(pool(), pool()), "two pools of the name 'small'"),
    ("too-many", worker(*(pool(f"p{n}") for n in range(101))), "101 entries"),
    ("too-many-zones", worker(*(pool(f"p{n}", zones=["z"] * 30) for n in range(20))), "600 zones"),
)
def test_pools_are_bounded_and_have_unique_names(asked: Object, words: str) -> None:
    with pytest.raises(Malformed, match=words):
        example.groups(asked)


@cases(
    "size shares",
    ("A6-R8-three", 3, [2, 1]),
    ("A6-R8-five", 5, [3, 2]),
    ("A6-R8-none", 0, [0, 0]),
    ("A6-R8-three-zones", 7, [3, 2, 2]),
)
def test_the_first_zones_get_more(size: int, shares: list[int]) -> None:
    assert [pools.share(zone, size, len(shares)) for zone in range(len(shares))] == shares


SCALED = worker(pool(minimum=2, maximum=5))
AT = example.site(SCALED)
AUTOSCALED = {"hibernated": False, "scaled": True, "awake": False}


def found(replicas: int = 2, **spec: Any) -> Object:
    [group] = example.groups(SCALED)
    made = workerplan.deployment(group, AT, replicas)
    return Object(merge(made, {"spec": spec}))


@cases(
    "there flags replicas",
    ("A9-1-hibernated", 4, {"hibernated": True}, 0),
    ("A9-2-nothing-is-scaled", 4, {"scaled": False}, 2),
    ("A9-3-new", None, {}, 2),
    ("A9-4-awake", 0, {"awake": True}, 2),
    ("A9-5-too-few", 1, {}, 2),
    ("A9-6-too-many", 9, {}, 5),
    ("A9-7-as-the-autoscaler-says", 4, {}, 4),
    ("A9-R1-an-unseen-deployment-is-not-shrunk", 4, {"awake": True}, 4),
)
def test_replicas(there: int | None, flags: dict[str, bool], replicas: int) -> None:
    [group] = example.groups(SCALED)
    before = None if there is None else found(there)
    assert workerplan.replicas(group, before, **{**AUTOSCALED, **flags}) == replicas


@cases(
    "sizes there replicas",
    ("A9-R4-limits-of-each-zone", {"minimum": 3, "maximum": 5, "zones": ["a", "b"]}, 9, [3, 2]),
    ("A9-R2-a-fixed-size-grows", {"minimum": 2, "maximum": 2}, 1, [2]),
    ("A9-R2-a-fixed-size-stays", {"minimum": 2, "maximum": 2}, 2, [2]),
    ("A9-R2-a-fixed-size-shrinks", {"minimum": 2, "maximum": 2}, 3, [2]),
)
def test_sizes_of_a_pool_limit_its_replicas(sizes: dict[str, Any], there: int, replicas: list[int]) -> None:
    groups = example.groups(worker(pool(**sizes)))
    assert [workerplan.replicas(group, found(there), **AUTOSCALED) for group in groups] == replicas


def test_fields_of_other_clients_stay() -> None:
    template = {"metadata": {"annotations": {"kept": "y"}}}
    before = found(paused=True, progressDeadlineSeconds=5, rollbackTo={"revision": 1}, template=template)
    head = {"labels": {"mine": "x"}, "annotations": {"deployment.kubernetes.io/revision": "3"}}
    before = Object(merge(before.raw, {"metadata": head}))
    [group] = example.groups(SCALED)
    assert workerplan.deployment_patch(before, group, AT, 2) == {}
    assert workerplan.deployment_patch(before, group, AT, 3) == {"spec": {"replicas": 3}}


def test_former_settings_of_a_pool_are_removed() -> None:
    settings: dict[str, Any] = {"machineDrainTimeout": "1h0m0s", "nodeConditions": ["A", "B"]}
    former = pool(
        labels={"a": "1", "b": "2"},
        taints=[{"key": "k", "effect": "NoSchedule"}],
        clusterAutoscaler={"maxNodeProvisionTime": "30m0s"},
        machineControllerManager={**settings, "autoPreserveFailedMachineMax": 1},
    )
    [before] = example.groups(worker(former))
    made = Object(workerplan.deployment(before, AT, 1))
    assert made.annotations == {"autoscaler.gardener.cloud/max-node-provision-time": "30m0s"}
    assert made.spec["template"]["spec"]["nodeConditions"] == "A,B"
    [after] = example.groups(worker(pool(labels={"a": "1"})))
    assert workerplan.deployment_patch(made, after, AT, 1) == {
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
    made = Object(workerplan.deployment(before, AT, 1))
    patch = workerplan.deployment_patch(made, after, AT, 1)["spec"]
    assert patch["strategy"]["rollingUpdate"] is None
    assert patch["strategy"]["type"] == "InPlaceUpdate"
    assert patch["template"]["metadata"]["labels"] == {"worker.gardener.cloud/name": "demo"}


@cases(
    "before after patch",
    ("same", {"a": 1}, {"a": 1}, {}),
    ("less", {"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, {"a": {"c": None}}),
    ("another-type", {"a": {"b": 1}}, {"a": [1]}, {"a": [1]}),
    ("empty", {}, {"a": {}}, {"a": {}}),
    ("null", {"a": None}, {}, {"a": None}),
)
def test_differences(before: dict[str, Any], after: dict[str, Any], patch: dict[str, Any]) -> None:
    assert workerplan.difference(before, after) == patch
    assert merge(before, patch) == after


@cases(
    "zones other words",
    ("twice", ["eu-central-1a"] * 2, "other", "2 MachineDeployments would have the name"),
    ("like-another-pool", ["x"], "small-x", "rename the pool"),
    ("odd", ["Zone A"], "other", "cannot be a part of names"),
)
def test_zones_of_a_cloud_give_each_group_a_name(zones: list[str], other: str, words: str) -> None:
    vswitches = [
        {"purpose": "nodes", "id": "vsw-1", "zone": zone}
        for zone in ("eu-central-1a", "x", "y", "x-y", "Zone A")
    ]
    groups = [{"purpose": "nodes", "id": "sg-1"}]
    pools = [
        pool(zones=zones if other != "small-x" else ["x-y"], volume={"size": "20Gi"}),
        pool(other, zones=["y"], volume={"size": "20Gi"}),
    ]
    asked = worker(
        *pools,
        status={"providerStatus": {"machineImages": [{"name": "local", "version": "1.0.0", "id": "m-1"}]}},
    )
    spec = {
        **asked.spec,
        "type": "alicloud",
        "infrastructureProviderStatus": {"vpc": {"vswitches": vswitches, "securityGroups": groups}},
    }
    cluster = {"cloudProfile": {"spec": {"machineTypes": [{"name": "local", "cpu": "1"}]}}}
    with pytest.raises(Malformed, match=words):
        workerplan.plan(
            Object({**asked.raw, "spec": spec}),
            ShootFacts(technical_id=example.TECHNICAL_ID),
            cluster,
            credentials={},
        )
