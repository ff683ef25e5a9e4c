"""What clouds give Workers and Machines: ids, zones, dependencies of pools, and images."""

from __future__ import annotations

from typing import Any

import pytest

from clouds import table
from clouds.frame import machineclasses
from clouds.frame.machineclasses import Instance, Machine, Machines, Planned
from tests.support.rules import rule
from tests.unit.clouds.machinepools import CLOUDS, NAMESPACE, SECRET, Given, config, given, pool_of, site_of

ROTATED = "2026-08-21T10:00:00Z"
_CREDENTIALS = {"project": "my-project", "subscription": "00000000-0000-0000-0000-000000000001"}
_ZONED = {"infrastructure/zoned": True, "pool/zones": ["1", "2"]}
_FAULT_DOMAINS = "profile/countFaultDomains/0/count"
_SERVER_GROUP = {"pool/providerConfig": config("openstack", serverGroup={"policy": "soft-anti-affinity"})}


def machines_of(cloud: str) -> Machines:
    found = table.cloud(cloud).machines
    assert found
    return found


def planned(cloud: str, *changes: Given) -> Planned:
    found = given(cloud, *changes)
    site = site_of(found)
    return machineclasses.plan(cloud, machines_of(cloud), [pool_of(found)], site)


def instance(cloud: str, *changes: Given, name: str = "one", owner: str = NAMESPACE) -> Instance:
    (group, *_) = planned(cloud, *changes).groups
    template = group.node_template or {}
    return machines_of(cloud).instance(group.provider_spec, template, Machine(owner, name, _CREDENTIALS))


_WITH_CAPACITY = {"pool/nodeTemplate": {"capacity": {"cpu": "2", "gpu": "0", "memory": "8Gi"}}}


@pytest.mark.parametrize(
    ("cloud", "changes", "provider_id", "zone", "label"),
    [
        pytest.param(
            "aws",
            _WITH_CAPACITY,
            "aws:///eu-central-1/i-" + "?" * 17,
            "eu-central-1a",
            "eu-central-1a",
            id="ALL-Z7+aws",
        ),
        pytest.param("azure", {}, "azure:///westeurope/one", "", "0", id="ALL-Z7+azure"),
        pytest.param(
            "azure", _ZONED, "azure:///westeurope/one", "1", "westeurope-1", id="ALL-Z7+AZU-X1+azure-zoned"
        ),
        pytest.param(
            "gcp",
            {},
            "gce:///my-project/europe-west1-b/one",
            "europe-west1-b",
            "europe-west1-b",
            id="ALL-Z7+gcp",
        ),
        pytest.param(
            "openstack",
            {},
            "openstack:///europe/????????-????-4???-????-????????????",
            "europe-1a",
            "europe-1a",
            id="ALL-Z7+openstack",
        ),
        pytest.param(
            "alicloud",
            {},
            "eu-central-1.i-" + "?" * 20,
            "eu-central-1a",
            "eu-central-1a",
            id="ALL-Z7+alicloud",
        ),
        pytest.param(
            "equinixmetal",
            {"pool/zones": ["ny5"]},
            "equinixmetal://ny/????????-????-4???-????-????????????",
            "ny5",
            "ny5",
            id="ALL-Z7+equinixmetal",
        ),
        pytest.param(
            "equinixmetal",
            {"pool/zones": None},
            "equinixmetal://ny/????????-????-4???-????-????????????",
            "",
            "",
            id="EQX-W2+no-facility",
        ),
    ],
)
def test_an_instance_has_an_id_of_the_cloud(
    cloud: str, changes: Given, provider_id: str, zone: str, label: str
) -> None:
    found = instance(cloud, changes)

    shown = "".join(
        "?" if wanted == "?" and one in "0123456789abcdef" else one
        for one, wanted in zip(found.provider_id, provider_id, strict=True)
    )
    assert shown == provider_id
    assert (found.zone, found.zone_label or found.zone) == (zone, label)
    assert found == instance(cloud, changes)
    assert instance(cloud, changes, name="two").provider_id != found.provider_id


@pytest.mark.parametrize("cloud", [pytest.param(one, id=f"ALL-Z6+{one}-known") for one in CLOUDS])
def test_the_image_of_a_class_is_in_the_profile_and_in_the_status(cloud: str) -> None:
    image = instance(cloud).image

    assert image in machineclasses.known_images(given(cloud)["profile"])
    assert image in machineclasses.known_images(planned(cloud).provider_status)
    assert machineclasses.known_images({}, None, [], {"machineImages": [{"versions": 5}, "x"]}) == set()


@pytest.mark.parametrize("cloud", [pytest.param(one, id=f"ALL-Z8+{one}-operating-system") for one in CLOUDS])
def test_a_class_names_its_operating_system(cloud: str) -> None:
    version = {
        "pool/machineImage/version": "1.0.0+2",
        "profile/machineImages/0/versions/0/version": "1.0.0+2",
    }
    image = given(cloud)["pool"]["machineImage"]["name"]
    (group, *_) = planned(cloud, version).groups

    shown = "1.0.0+2" if cloud == "alicloud" else "1.0.0_2"
    assert group.class_labels == {"operatingSystemName": image, "operatingSystemVersion": shown}
    assert machines_of(cloud).provider.lower() == cloud


@pytest.mark.parametrize(
    ("cloud", "changes", "other"),
    [
        pytest.param(
            "openstack",
            _SERVER_GROUP,
            {"pool/providerConfig/serverGroup/policy": "anti-affinity"},
            id="OST-W8+OST-W9+policy",
        ),
        pytest.param("azure", {"dependencies": []}, {_FAULT_DOMAINS: 2}, id="AZU-W5+AZU-W7+fault-domains"),
    ],
)
def test_another_setting_of_a_pool_makes_another_group_and_replaces_machines(
    cloud: str, changes: Given, other: Given
) -> None:
    before, again, after = planned(cloud, changes), planned(cloud, changes), planned(cloud, changes, other)

    field = machines_of(cloud).dependencies
    assert before == again
    assert before.provider_status[field][0] != after.provider_status[field][0]
    assert before.groups[0].class_name != after.groups[0].class_name


@rule("OST-W9")
def test_a_server_group_is_named_after_its_pool() -> None:
    [found] = planned("openstack", _SERVER_GROUP).provider_status["serverGroupDependencies"]

    assert found["poolName"] == "worker-xoluy"
    assert found["name"].startswith(f"{NAMESPACE}-worker-xoluy-")
    assert len(found["name"]) == len(f"{NAMESPACE}-worker-xoluy-") + 10
    assert planned("openstack").provider_status["serverGroupDependencies"] is None


@rule("AZU-W5")
def test_a_scale_set_is_a_path_in_the_resource_group() -> None:
    found = planned("azure", {"dependencies": []})
    [one] = found.provider_status["vmoDependencies"]

    path = f"resourceGroups/{NAMESPACE}/providers/Microsoft.Compute/virtualMachineScaleSets"
    assert one["name"].startswith("vmo-worker-xoluy-")
    assert len(one["name"]) == len("vmo-worker-xoluy-") + 8
    assert one["id"].endswith(f"/{path}/{one['name']}")
    assert found.groups[0].provider_spec["properties"]["machineSet"] == {"id": one["id"], "kind": "vmo"}
    assert planned("azure", _ZONED).provider_status["vmoDependencies"] is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param(None, "", id="ALL-Z4+none"),
        pytest.param({}, "{}", id="ALL-Z4+empty"),
        pytest.param({"b": [1, "x"], "a": {"d": True, "c": None}}, '{"a":{"c":null,"d":true},"b":[1,"x"]}',
                     id="ALL-Z4+sorted"),
        pytest.param({"a": "<é&>\u2028"}, '{"a":"\\u003cé\\u0026\\u003e\\u2028"}', id="ALL-Z4+escaped"),
    ],
)  # fmt: skip
def test_a_config_is_hashed_as_api_servers_spell_it(value: Any, text: str) -> None:
    assert machineclasses.spelled(value) == text


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize(
    "spec", [{}, {"region": 5, "spec": [], "properties": {"zone": [1]}, "disks": {"a": 1}}]
)
def test_a_class_of_any_form_is_no_crash(cloud: str, spec: dict[str, Any]) -> None:
    found = machines_of(cloud).instance(spec, {"zone": {}}, Machine("x", "y", {}))

    assert (found.image, found.region) == ("", "")


@pytest.mark.parametrize("cloud", [pytest.param(one, id=f"A7+{one}-in-place") for one in CLOUDS])
def test_what_updates_in_place_bring_changes_the_class_of_such_pools_only(cloud: str) -> None:
    newer = {
        "shoot/status": {
            "credentials": {"rotation": {"certificateAuthorities": {"lastInitiationTime": ROTATED}}}
        }
    }
    agent = {"pool/nodeAgentSecretName": SECRET}
    in_place = {**agent, "pool/updateStrategy": "AutoInPlaceUpdate"}

    def name(*changes: Given) -> str:
        return planned(cloud, *changes).groups[0].class_name

    assert name(agent) == name(agent, newer)
    assert name(in_place) != name(in_place, newer)
    assert name(in_place) != name(agent)
