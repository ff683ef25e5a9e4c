"""Infrastructures of type alicloud: their status, addresses that stay or change, and what has to exist."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from clouds import table
from clouds.frame.gardenobjects import Networking, Worker
from clouds.frame.infrastructure import Opening, Plan, Subnet
from clouds.frame.inventory import CloudObject
from clouds.frame.operator.existing import described
from tests.support.cases import cases
from tests.support.cloudsites import by_name, planned, site
from tests.support.rules import rule
from windowbox.errors import Malformed

NAME = "shoot--garden--example"
VPC, GROUP, GATEWAY = "vpc-e1537839e75cb00c224cc", "sg-5ae5963b898166ad2ad40", "ngw-549d40e597f0d375cd482"
SWITCHES = ("vsw-f5224c9382f0470fc7b45", "vsw-3eec24e66fbc56ea36943")
EIPS = ("eip-e450b551bc16b000cabb6", "eip-770f3004d8079345fe054")
ADDRESSES = ("255.1.234.199", "255.0.220.70")
TABLE = "stb-f31a88b4fef62b1e003e6"
OWN_EIP = {"networks/zones/0/natGateway": {"eipAllocationID": "eip-mine"}}
OWN_VPC = {"networks/vpc": {"id": "vpc-mine"}}
MANAGED = {"networks/vpc": {"id": "vpc-mine", "gardenerManagedNATGateway": True}}


def eip(**properties: Any) -> CloudObject:
    return CloudObject("eip", "eip-mine", properties=properties)


def vpc(**properties: Any) -> CloudObject:
    return CloudObject("vpc", "vpc-mine", properties=properties)


def gateways(*zones: str) -> CloudObject:
    return CloudObject("natgw-zones", "eu-central-1", properties={"zones": list(zones)})


def ids(plan: Plan, kind: str) -> list[str]:
    return [one.id for one in plan.objects if one.kind == kind]


@rule("ALL-F4")
def test_the_example_has_the_status_of_the_contract() -> None:
    found = planned("alicloud")

    assert found.provider_status == {
        "apiVersion": "alicloud.provider.extensions.gardener.cloud/v1alpha1",
        "kind": "InfrastructureStatus",
        "vpc": {
            "id": VPC,
            "vswitches": [
                {"purpose": "nodes", "id": SWITCHES[0], "zone": "eu-central-1a"},
                {"purpose": "nodes", "id": SWITCHES[1], "zone": "eu-central-1b"},
            ],
            "securityGroups": [{"purpose": "nodes", "id": GROUP}],
        },
        "keyPairName": "",
    }
    assert found.state == {
        "apiVersion": "alicloud.provider.extensions.gardener.cloud/v1alpha1",
        "kind": "FlowState",
        "data": {
            "VPC": VPC,
            "NodesSecurityGroup": GROUP,
            "NatGateway": GATEWAY,
            "Zones/eu-central-1a/Suffix": "z0",
            "Zones/eu-central-1a/VSwitch": SWITCHES[0],
            "Zones/eu-central-1a/NATGatewayElasticIP": EIPS[0],
            "Zones/eu-central-1a/NATGatewayElasticIPAddress": ADDRESSES[0],
            "Zones/eu-central-1b/Suffix": "z1",
            "Zones/eu-central-1b/VSwitch": SWITCHES[1],
            "Zones/eu-central-1b/NATGatewayElasticIP": EIPS[1],
            "Zones/eu-central-1b/NATGatewayElasticIPAddress": ADDRESSES[1],
        },
    }
    assert found.egress == (f"{ADDRESSES[0]}/32", f"{ADDRESSES[1]}/32")
    assert found.subnets == (
        Subnet("10.250.0.0/19", "eu-central-1a"),
        Subnet("10.250.32.0/19", "eu-central-1b"),
    )
    assert (found.networking, found.uses) == (None, ())


def test_the_example_has_the_objects_of_the_contract() -> None:
    found = planned("alicloud")

    assert [(one.kind, one.name) for one in found.objects] == [
        ("vpc", f"{NAME}-vpc"),
        ("security-group", f"{NAME}-sg"),
        ("vswitch", f"{NAME}-eu-central-1a-vsw"),
        ("vswitch", f"{NAME}-eu-central-1b-vsw"),
        ("nat-gateway", f"{NAME}-natgw"),
        ("eip", f"{NAME}-eip-natgw-z0"),
        ("snat-entry", f"{NAME}-snat-z0-{TABLE}"),
        ("eip", f"{NAME}-eip-natgw-z1"),
        ("snat-entry", f"{NAME}-snat-z1-{TABLE}"),
    ]
    gateway = by_name(found, "nat-gateway")[f"{NAME}-natgw"]
    assert gateway.properties == {"vpc": VPC, "vSwitch": SWITCHES[0], "zone": "eu-central-1a"}


def test_telnet_and_the_remote_shell_stay_shut() -> None:
    found = planned("alicloud", networking=Networking(nodes="10.250.0.0/16", pods="172.24.0.0/13"))

    assert set(found.openings) == {
        Opening("TCP", 30000, 32767),
        *(
            Opening(protocol, first, last, "10.250.0.0/16")
            for protocol in ("TCP", "UDP")
            for first, last in ((1, 22), (24, 513), (515, 65535))
        ),
        *(Opening(protocol, source="172.24.0.0/13") for protocol in ("TCP", "UDP")),
    }
    assert {one.source for one in planned("alicloud", networking=Networking()).openings} == {
        "0.0.0.0/0",
        "10.250.0.0/16",
    }


@rule("ALL-F4")
def test_what_the_state_has_outlives_a_change_of_the_access_key() -> None:
    first = planned("alicloud")

    assert planned("alicloud", state=first.state) == first
    assert planned("alicloud", account="alicloud-000000000002", state=first.state) == first
    other = planned("alicloud", account="alicloud-000000000002")
    assert not {one.id for one in first.objects} & {one.id for one in other.objects}


@rule("ALI-U2")
def test_a_new_zone_gets_the_next_suffix_and_the_others_keep_theirs() -> None:
    [first, second] = site("alicloud").config["networks"]["zones"]  # type: ignore[index]
    third = {"name": "eu-central-1c", "workers": "10.250.64.0/19"}
    before = planned("alicloud", {"networks/zones": [first, second]})

    after = planned("alicloud", {"networks/zones": [first, second, third]}, state=before.state)

    assert after.state["data"].items() > before.state["data"].items()
    assert after.state["data"]["Zones/eu-central-1c/Suffix"] == "z2"
    moved = {**before.state, "data": {"Zones/eu-central-1b/Suffix": "z0"}}
    assert planned("alicloud", state=moved).state["data"]["Zones/eu-central-1a/Suffix"] == "z1"


@rule("ALI-R3")
def test_an_eip_of_the_user_takes_the_place_of_one_that_is_gone_for_good() -> None:
    first = planned("alicloud")
    mine = planned("alicloud", OWN_EIP, eip(address="203.0.113.7"), state=first.state)

    assert mine.egress == ("203.0.113.7/32", f"{ADDRESSES[1]}/32")
    assert ids(mine, "eip") == [EIPS[1]]
    assert "Zones/eu-central-1a/NATGatewayElasticIP" not in mine.state["data"]
    assert ids(mine, "nat-gateway") == [GATEWAY]
    assert ids(mine, "snat-entry")[0] != ids(first, "snat-entry")[0]
    assert ids(mine, "snat-entry")[1] == ids(first, "snat-entry")[1]
    assert [(one.kind, one.id, one.exclusive) for one in mine.uses] == [("eip", "eip-mine", True)]

    back = planned("alicloud", state=mine.state)
    assert ids(back, "eip")[0] not in (EIPS[0], "eip-mine")
    assert back.egress[0] not in (first.egress[0], mine.egress[0])
    assert back.egress[1] == first.egress[1]
    assert planned("alicloud", state=back.state) == back


@cases(
    "existing error",
    ("ALI-R3-missing", [], r"networks.zones\[0\].natGateway.eipAllocationID: Not found: 'eip-mine'"),
    ("ALI-R3-used", [replace(eip(), used_by="shoot--a--b")], "used by shoot--a--b"),
    ("ALI-R3-no-address", [eip(address="moon")], "'moon' and has to be an IPv4 address"),
)
def test_an_eip_of_the_user_has_to_exist(existing: list[CloudObject], error: str) -> None:
    with pytest.raises(Malformed, match=error):
        planned("alicloud", OWN_EIP, *existing)


@rule("ALI-R3")
def test_two_zones_cannot_have_one_eip() -> None:
    both = OWN_EIP | {"networks/zones/1/natGateway": {"eipAllocationID": "eip-mine"}}

    with pytest.raises(Malformed, match=r"networks.zones\[1\].natGateway.eipAllocationID: Forbidden"):
        planned("alicloud", both, eip())


@cases(
    "changes existing error",
    ("ALI-R1-missing", OWN_VPC, [], "networks.vpc.id: Not found: 'vpc-mine': the account has no such vpc"),
    ("ALI-R1-no-gateway", OWN_VPC, [vpc(natGateway=False)], "networks.vpc.id: .*no user natgateway found"),
    ("range", OWN_VPC, [vpc(cidr="moon")], 'networks.vpc.id: cidr of the vpc: Invalid value: "moon"'),
)
def test_an_existing_vpc_has_to_be_prepared(
    changes: dict[str, Any], existing: list[CloudObject], error: str
) -> None:
    with pytest.raises(Malformed, match=error):
        planned("alicloud", changes, *existing)


@rule("ALI-R1")
def test_an_existing_vpc_has_a_gateway_of_its_own() -> None:
    found = planned("alicloud", OWN_VPC, vpc(cidr="10.0.0.0/8"))

    assert found.provider_status["vpc"]["id"] == found.state["data"]["VPC"] == "vpc-mine"
    assert {one.kind for one in found.objects} == {"security-group", "vswitch", "eip", "snat-entry"}
    assert found.state["data"]["NatGateway"].startswith("ngw-")
    assert {one.source for one in found.openings} == {"0.0.0.0/0", "10.0.0.0/8", "172.24.0.0/13"}
    unsaid = planned("alicloud", OWN_VPC, vpc())
    assert {one.source for one in unsaid.openings} == {"0.0.0.0/0", "10.250.0.0/16", "172.24.0.0/13"}


@rule("ALI-R1")
def test_gardener_makes_a_gateway_in_an_existing_vpc_if_it_shall() -> None:
    found = planned("alicloud", MANAGED, vpc(natGateway=False))

    assert ids(found, "nat-gateway") == [GATEWAY]
    assert "vpc" not in {one.kind for one in found.objects}


@cases(
    "changes existing",
    ("ALI-R2-new-vpc", {}, []),
    ("ALI-R2-existing-vpc", MANAGED, [vpc()]),
)
def test_the_gateway_lies_in_a_zone_that_offers_it(
    changes: dict[str, Any], existing: list[CloudObject]
) -> None:
    refused = (
        r"networks.zones\[0\].name: Forbidden: zone eu-central-1a does not .*: eu-central-1b eu-central-1c"
    )

    with pytest.raises(Malformed, match=refused):
        planned("alicloud", changes, *existing, gateways("eu-central-1b", "eu-central-1c"))
    planned("alicloud", changes, *existing, gateways("eu-central-1a"))


@rule("ALI-R2")
def test_zones_with_gateways_are_as_people_add_them() -> None:
    kinds, given = table.cloud("alicloud").existing, ["zones=eu-central-1b,eu-central-1a"]

    planned("alicloud", {}, described(kinds, "natgw-zones", "eu-central-1", given, shared=False))


@rule("ALI-R2")
def test_a_gateway_of_the_user_lies_where_it_is() -> None:
    planned("alicloud", OWN_VPC, vpc(), gateways("eu-central-1c"))


@rule("ALI-R2")
def test_only_zones_of_the_region_offer_gateways_if_nobody_has_said_which() -> None:
    with pytest.raises(Malformed, match=r"zone moon-1a does not .*: eu-central-1a eu-central-1b"):
        planned("alicloud", {"networks/zones/0/name": "moon-1a"})


def pool(version: str = "1592.1.0", encrypted: bool | None = None) -> Worker:
    volume = {"type": "cloud_essd", "size": "20Gi", "encrypted": encrypted}
    return Worker.model_validate(
        {"name": "a", "machine": {"image": {"name": "gardenlinux", "version": version}}, "volume": volume}
    )


def image(id_: str, version: str = "1592.1.0", encrypted: bool = False) -> dict[str, Any]:
    return {"name": "gardenlinux", "version": version, "id": id_, "encrypted": encrypted}


PLAIN = image("m-gw8gardenlinux15921")
COPY = image("m-f2f38582ca86db24a41f", encrypted=True)


@cases(
    "pools before images",
    ("ALL-Z6-plain", [pool(), pool()], [], [PLAIN]),
    ("ALI-W4-copy", [pool(encrypted=True), pool()], [], [COPY, PLAIN]),
    (
        "ALI-W4-copy-of-before",
        [pool(encrypted=True)],
        [image("m-1", encrypted=True)],
        [image("m-1", encrypted=True)],
    ),
    ("ALL-Z6-of-before", [pool("1.0.0")], [image("m-2", "1.0.0")], [image("m-2", "1.0.0")]),
    ("ALL-Z6-of-the-profile", [pool()], [image("m-3")], [PLAIN]),
)
def test_the_status_has_the_images_of_the_pools(
    pools: list[Worker], before: list[dict[str, Any]], images: list[dict[str, Any]]
) -> None:
    found = planned("alicloud", pools=pools, status={"machineImages": before})

    assert found.provider_status["machineImages"] == images


@cases(
    "given before error",
    ("ALL-Z6-unknown", pool("1.0.0"), [], "pool 'a': could not find machine image for gardenlinux/1.0.0"),
    ("ALI-W4-unknown", pool("1.0.0", encrypted=True), [], "could not find machine image for gardenlinux/1"),
    (
        "ALI-W4-of-the-cloud",
        pool("1.0.0", encrypted=True),
        [image("garden.vhd", "1.0.0")],
        "owned by AliCloud",
    ),
    ("ALL-Z6-no-id", pool("1.0.0"), [{**PLAIN, "version": "1.0.0", "id": 1}], "could not find machine image"),
)
def test_images_that_cannot_be_used_are_refused(
    given: Worker, before: list[dict[str, Any]], error: str
) -> None:
    with pytest.raises(Malformed, match=error):
        planned("alicloud", pools=[given], status={"machineImages": before})


@cases(
    "changes error",
    ("ALI-I2", {"networks/vpc": {}}, "networks.vpc: Invalid"),
    ("ALI-I3", {"networks/zones": []}, "networks.zones: Required"),
    ("ALI-I4", {"networks/zones/1/workers": "10.250.0.0/20"}, r"networks.zones\[1\].workers: .*overlap"),
    ("ALI-I5", {"networks/vpc": {"cidr": "10.250"}}, "networks.vpc.cidr: .*is no CIDR"),
    ("ALI-I6", {"networks/zones/0/natGateway": {}}, r"networks.zones\[0\].natGateway: Invalid"),
    ("no-workers", {"networks/zones/1/workers": ""}, r"networks.zones\[1\].workers: Required"),
    ("zone-twice", {"networks/zones/1/name": "eu-central-1a"}, r"networks.zones\[1\].name: Duplicate"),
    ("zone-of-no-name", {"networks/zones/1/name": "../etc"}, r"networks.zones\[1\].name: Invalid"),
    ("ALL-4", {"networks/unknown": True}, "networks.unknown"),
)
def test_what_admission_refuses_has_no_plan(changes: dict[str, Any], error: str) -> None:
    with pytest.raises(Malformed, match=error):
        planned("alicloud", changes)


def test_a_pod_network_that_is_no_range_is_refused() -> None:
    with pytest.raises(Malformed, match=r"spec.networking.pods: .*is no CIDR"):
        planned("alicloud", networking=Networking(nodes="10.250.0.0/16", pods="moon"))


def test_the_former_name_of_workers_counts() -> None:
    changes = {"networks/zones/0/workers": None, "networks/zones/0/worker": "10.250.64.0/18"}

    assert planned("alicloud", changes).subnets[0] == Subnet("10.250.64.0/18", "eu-central-1a")
