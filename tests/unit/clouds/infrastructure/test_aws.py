"""Plans of Infrastructures of type aws."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from clouds.frame.infrastructure import Opening, Plan, Subnet
from clouds.frame.inventory import CloudObject
from tests.support import cloudsites
from tests.support.cases import cases
from tests.support.cloudsites import ID, by_name, planned
from tests.support.rules import rule
from windowbox.errors import Malformed

_EIP = "networks/zones/0/elasticIPAllocationID"
_EIP_PATH = "networks.zones[0].elasticIPAllocationID"
_VPC_PATH = "networks.vpc.id"
_IN_VPC = {"networks/vpc": {"id": "vpc-1"}}
_DUAL_STACK = {"dualStack": {"enabled": True}}
_ZONES = ("eu-central-1a", "eu-central-1b")


def _in_vpc(changes: dict[str, Any], **properties: Any) -> Plan:
    return planned("aws", _IN_VPC | changes, CloudObject("vpc", "vpc-1", properties=properties))


def _with_families(
    *families: str, changes: dict[str, Any] | None = None, vpc: CloudObject | None = None
) -> Plan:
    networking = cloudsites.site("aws").networking.model_copy(update={"ip_families": list(families)})
    return planned("aws", changes, *([vpc] if vpc else []), networking=networking)


def _data(plan: Plan) -> dict[str, str]:
    found: dict[str, str] = plan.state["data"]
    return found


def test_the_status_of_the_example() -> None:
    plan = planned("aws")

    assert plan.provider_status == {
        "apiVersion": "aws.provider.extensions.gardener.cloud/v1alpha1",
        "kind": "InfrastructureStatus",
        "ec2": {"keyName": "shoot--garden--example-ssh-publickey"},
        "iam": {
            "instanceProfiles": [{"purpose": "nodes", "name": "shoot--garden--example-nodes"}],
            "roles": [
                {"purpose": "nodes", "arn": "arn:aws:iam::000000000001:role/shoot--garden--example-nodes"}
            ],
        },
        "vpc": {
            "id": "vpc-f425e73e83f5873d7",
            "subnets": [
                {"purpose": "nodes", "id": "subnet-6777b14532d8e1953", "zone": "eu-central-1a"},
                {"purpose": "public", "id": "subnet-b712b10ed7f22b9fc", "zone": "eu-central-1a"},
                {"purpose": "nodes", "id": "subnet-4a668c1d0bf242144", "zone": "eu-central-1b"},
                {"purpose": "public", "id": "subnet-d1a331b13e9f14644", "zone": "eu-central-1b"},
            ],
            "securityGroups": [{"purpose": "nodes", "id": "sg-9e29a554b62155735"}],
        },
    }


@rule("ALL-F4")
def test_the_state_of_the_example() -> None:
    plan = planned("aws")

    assert plan.state == {
        "apiVersion": "aws.provider.extensions.gardener.cloud/v1alpha1",
        "kind": "InfrastructureState",
        "data": {
            "DHCPOptions": "dopt-ddd4ee598b398acb0",
            "VPC": "vpc-f425e73e83f5873d7",
            "DefaultSecurityGroup": "sg-0284422527265d530",
            "InternetGateway": "igw-06ee6e00d1fe051db",
            "MainRouteTable": "rtb-2b280ebb5672258d0",
            "NodesSecurityGroup": "sg-9e29a554b62155735",
            "IAMRoleName": "shoot--garden--example-nodes",
            "IAMRoleARN": "arn:aws:iam::000000000001:role/shoot--garden--example-nodes",
            "IAMInstanceProfileName": "shoot--garden--example-nodes",
            "IAMRolePolicyName": "shoot--garden--example-nodes",
            "KeyPair": "shoot--garden--example-ssh-publickey",
            "KeyPairFingerprint": "12:7c:be:90:37:32:88:ac:fc:e5:f0:36:a1:70:98:29",
            "KeyPairSpecFingerprint": "12:7c:be:90:37:32:88:ac:fc:e5:f0:36:a1:70:98:29",
            "Zones/eu-central-1a/Suffix": "z0",
            "Zones/eu-central-1a/SubnetWorkers": "subnet-6777b14532d8e1953",
            "Zones/eu-central-1a/SubnetPublicUtility": "subnet-b712b10ed7f22b9fc",
            "Zones/eu-central-1a/SubnetPrivateUtility": "subnet-2feb64b04567f970c",
            "Zones/eu-central-1a/NATGatewayElasticIP": "eipalloc-a675dfc6e3e43d120",
            "Zones/eu-central-1a/NATGateway": "nat-af4e0aedb44b7d66c",
            "Zones/eu-central-1a/ZoneRouteTable": "rtb-969c6feedad3fc3fa",
            "Zones/eu-central-1a/SubnetPublicRouteTableAssoc": "rtbassoc-6cc01b47fb8be3d73",
            "Zones/eu-central-1a/SubnetPrivateRouteTableAssoc": "rtbassoc-7d10c826b39e1f073",
            "Zones/eu-central-1a/SubnetWorkersRouteTableAssoc": "rtbassoc-48f4f62e11638f940",
            "Zones/eu-central-1b/Suffix": "z1",
            "Zones/eu-central-1b/SubnetWorkers": "subnet-4a668c1d0bf242144",
            "Zones/eu-central-1b/SubnetPublicUtility": "subnet-d1a331b13e9f14644",
            "Zones/eu-central-1b/SubnetPrivateUtility": "subnet-5eb3575b66f174f8d",
            "Zones/eu-central-1b/NATGatewayElasticIP": "eipalloc-bb0976124d25e6087",
            "Zones/eu-central-1b/NATGateway": "nat-45793005a71b46528",
            "Zones/eu-central-1b/ZoneRouteTable": "rtb-6c523a87cf24520f1",
            "Zones/eu-central-1b/SubnetPublicRouteTableAssoc": "rtbassoc-1f874473c49fc61dc",
            "Zones/eu-central-1b/SubnetPrivateRouteTableAssoc": "rtbassoc-862c73ca6099cca9a",
            "Zones/eu-central-1b/SubnetWorkersRouteTableAssoc": "rtbassoc-e511f7177c8d593bf",
            "EgressCIDRs": "255.1.162.234/32,255.0.33.101/32",
        },
    }


def test_without_a_public_key_there_is_no_key_pair() -> None:
    plan = planned("aws", ssh_public_key="")

    assert plan.provider_status["ec2"] == {"keyName": ""}
    assert by_name(plan, "key-pair") == {}


@cases(
    "changes properties message",
    ("AWS-R1-DNS", {}, {"enableDnsSupport": False}, "enableDnsSupport of this vpc is False"),
    ("AWS-R1-host-names", {}, {"enableDnsHostnames": False}, "enableDnsHostnames of this vpc is False"),
    ("AWS-R1-gateway", {}, {"internetGateway": False}, "internetGateway of this vpc is False"),
    ("AWS-R2-domain", {}, {"domainName": "x"}, "domainName of this vpc is 'x' and has to be "),
    ("AWS-R3-no-block", _DUAL_STACK, {}, "ipv6CidrBlock of this vpc is ''"),
    ("AWS-R3-no-range", _DUAL_STACK, {"ipv6CidrBlock": "x"}, "ipv6CidrBlock of this vpc is 'x'"),
    (
        "AWS-R3-IPv4",
        _DUAL_STACK,
        {"ipv6CidrBlock": "10.0.0.0/8"},
        "ipv6CidrBlock of this vpc is '10.0.0.0/8'",
    ),
    (
        "AWS-R3-length",
        _DUAL_STACK,
        {"ipv6CidrBlock": "2600::/64"},
        "ipv6CidrBlock of this vpc is '2600::/64'",
    ),
)
def test_an_existing_vpc_has_what_a_shoot_needs(
    changes: dict[str, Any], properties: dict[str, Any], message: str
) -> None:
    with pytest.raises(Malformed) as caught:
        _in_vpc(changes, **properties)

    assert str(caught.value).startswith(f"{_VPC_PATH}: Invalid value: 'vpc-1': {message}")


@cases(
    "families properties message",
    ("AWS-R3-IPv6-block", ("IPv6",), {}, "ipv6CidrBlock of this vpc is ''"),
    (
        "AWS-R3-IPv6-gateway",
        ("IPv4", "IPv6"),
        {"ipv6CidrBlock": "2600:1f18::/56", "egressOnlyInternetGateway": False},
        "egressOnlyInternetGateway of this vpc is False",
    ),
)
def test_an_existing_vpc_has_what_ipv6_needs(
    families: tuple[str, ...], properties: dict[str, Any], message: str
) -> None:
    with pytest.raises(Malformed, match=message):
        _with_families(*families, changes=_IN_VPC, vpc=CloudObject("vpc", "vpc-1", properties=properties))


@rule("AWS-R2")
def test_the_domain_of_us_east_1_is_another() -> None:
    vpc = CloudObject("vpc", "vpc-1", properties={"domainName": "ec2.internal"})

    assert planned("aws", _IN_VPC, vpc, region="us-east-1").uses[0].id == "vpc-1"


@rule("AWS-R1")
def test_an_existing_vpc_is_used_and_not_made() -> None:
    plan = _in_vpc({})

    assert plan.provider_status["vpc"]["id"] == "vpc-1"
    assert _data(plan)["VPC"] == "vpc-1"
    made = {one.kind for one in plan.objects}
    assert made.isdisjoint({"vpc", "dhcp-options", "internet-gateway"})
    assert not plan.uses[0].exclusive


@rule("AWS-R1")
def test_an_unknown_vpc_is_an_error() -> None:
    with pytest.raises(Malformed, match=rf"{_VPC_PATH}: Not found: 'vpc-1'"):
        planned("aws", _IN_VPC)


@cases(
    "ip message",
    ("AWS-R4-unknown", CloudObject("elastic-ip", "eipalloc-2"), "Not found: 'eipalloc-1'"),
    ("AWS-R4-used", CloudObject("elastic-ip", "eipalloc-1", used_by="shoot--x"), "used by shoot--x"),
    (
        "AWS-R4-no-address",
        CloudObject("elastic-ip", "eipalloc-1", properties={"address": "nonsense"}),
        "address of this elastic-ip is 'nonsense'",
    ),
)
def test_an_elastic_ip_of_the_user_exists_and_is_free(ip: CloudObject, message: str) -> None:
    with pytest.raises(Malformed) as caught:
        planned("aws", {_EIP: "eipalloc-1"}, ip)

    assert str(caught.value).startswith(f"{_EIP_PATH}: ")
    assert message in str(caught.value)


@rule("AWS-R4")
@pytest.mark.parametrize("used_by", [pytest.param("", id="free"), pytest.param(ID, id="own")])
def test_an_elastic_ip_of_the_user_is_the_address_of_its_zone(used_by: str) -> None:
    ip = CloudObject("elastic-ip", "eipalloc-1", properties={"address": "198.51.100.7"}, used_by=used_by)
    plan = planned("aws", {_EIP: "eipalloc-1"}, ip)

    assert plan.egress[0] == "198.51.100.7/32"
    assert [one.id for one in plan.uses if one.exclusive] == ["eipalloc-1"]
    assert f"{ID}-eip-natgw-z0" not in by_name(plan, "elastic-ip")
    assert f"{ID}-eip-natgw-z1" in by_name(plan, "elastic-ip")


def test_a_gateway_that_loses_its_elastic_ip_gets_a_new_one() -> None:
    key = "Zones/eu-central-1a/NATGatewayElasticIP"
    first = planned("aws")
    second = planned("aws", {_EIP: "eipalloc-1"}, CloudObject("elastic-ip", "eipalloc-1"), state=first.state)
    third = planned("aws", state=second.state)

    assert key not in _data(second)
    assert len({_data(plan)["Zones/eu-central-1a/NATGateway"] for plan in (first, second, third)}) == 3
    assert _data(third)[key] != _data(first)[key]
    assert third.egress[0] != first.egress[0]
    assert third.egress[1] == first.egress[1]
    assert planned("aws", state=third.state) == third


def test_a_zone_keeps_its_suffix() -> None:
    site = cloudsites.site("aws")
    zones = site.config["networks"]["zones"]  # type: ignore[index]
    state = {"data": {"Zones/eu-central-1b/Suffix": "z0"}}

    plan = planned("aws", {"networks/zones": zones}, state=state)

    assert _data(plan)["Zones/eu-central-1a/Suffix"] == "z1"
    assert _data(plan)["Zones/eu-central-1b/Suffix"] == "z0"


def test_a_vpc_with_dual_stack_has_ipv6_and_its_machines_have_not() -> None:
    plan = planned("aws", _DUAL_STACK)
    block = _data(plan)["VPCIPv6CidrBlock"]

    assert by_name(plan, "vpc")[ID].properties["ipv6CidrBlock"] == block
    assert by_name(plan, "egress-only-internet-gateway") == {}
    assert plan.subnets == planned("aws").subnets
    assert plan.networking == planned("aws").networking
    assert len(plan.egress) == 2


def test_the_ranges_of_ipv6_are_numbered() -> None:
    properties = {"ipv6CidrBlock": "2600:1f18:0:ab00::/56"}
    vpc = CloudObject("vpc", "vpc-1", properties=properties)

    plan = _with_families("IPv4", "IPv6", changes=_IN_VPC, vpc=vpc)

    assert {name: one.properties["ipv6Cidr"] for name, one in by_name(plan, "subnet").items()} == {
        f"{ID}-nodes-z0": "2600:1f18:0:ab00::/64",
        f"{ID}-private-utility-z0": "2600:1f18:0:ab01::/64",
        f"{ID}-public-utility-z0": "2600:1f18:0:ab02::/64",
        f"{ID}-nodes-z1": "2600:1f18:0:ab03::/64",
        f"{ID}-private-utility-z1": "2600:1f18:0:ab04::/64",
        f"{ID}-public-utility-z1": "2600:1f18:0:ab05::/64",
    }
    assert plan.subnets == (
        Subnet("10.250.0.0/19", "eu-central-1a"),
        Subnet("2600:1f18:0:ab00::/64", "eu-central-1a"),
        Subnet("10.250.32.0/19", "eu-central-1b"),
        Subnet("2600:1f18:0:ab03::/64", "eu-central-1b"),
    )
    assert plan.networking == {
        "nodes": ["2600:1f18:0:ab00::/56", "10.250.0.0/16"],
        "pods": ["2600:1f18:0:ab00::/56", "100.96.0.0/11"],
        "services": ["2600:1f18:0:ab00::10:0/108", "100.64.0.0/13"],
    }
    assert plan.egress[2:] == ("2600:1f18:0:ab00::/56",)
    sources = {one.source for one in plan.openings if ":" in one.source}
    assert sources == {
        "::/0",
        "2600:1f18:0:ab01::/64",
        "2600:1f18:0:ab02::/64",
        "2600:1f18:0:ab04::/64",
        "2600:1f18:0:ab05::/64",
    }


def test_a_shoot_of_ipv6_alone_has_no_ranges_of_ipv4() -> None:
    plan = _with_families("IPv6")

    assert {":" in one.cidr for one in plan.subnets} == {True}
    assert {":" in one.source for one in plan.openings} == {True}
    assert by_name(plan, "subnet")[f"{ID}-nodes-z0"].properties["cidr"] is None
    assert len(by_name(plan, "egress-only-internet-gateway")) == 1


def test_node_ports_are_open_for_everybody_and_subnets_of_load_balancers() -> None:
    sources = ["0.0.0.0/0", "10.250.112.0/22", "10.250.96.0/22", "10.250.116.0/22", "10.250.100.0/22"]
    wanted = [Opening(protocol, 30000, 32767, source) for source in sources for protocol in ("TCP", "UDP")]

    assert list(planned("aws").openings) == wanted


def test_gateway_endpoints_come_and_go() -> None:
    plan = planned("aws", {"networks/vpc/gatewayEndpoints": ["s3", "s3"]})

    assert [one.properties for one in plan.objects if one.kind == "vpc-endpoint"] == [
        {"service": "com.amazonaws.eu-central-1.s3"}
    ]
    assert "VPCEndpoints/s3" not in _data(planned("aws", state=plan.state))


@pytest.mark.parametrize(("given", "ecr"), [(None, True), (True, True), (False, False)])
def test_machines_may_read_registries_unless_switched_off(given: bool | None, ecr: bool) -> None:
    plan = planned("aws", {} if given is None else {"enableECRAccess": given})

    assert by_name(plan, "iam-role")[f"{ID}-nodes"].properties == {"ecr": ecr}


@cases(
    "changes path",
    ("twice", {"networks/zones/1/name": "eu-central-1a"}, "networks.zones[1].name: Duplicate value"),
    ("no-name", {"networks/zones/0/name": "a/../b"}, "networks.zones[0].name: Invalid value"),
    ("no-vpc", {"networks/vpc": {}}, "networks.vpc: Invalid value"),
    ("no-range", {"networks/zones/0/workers": "x"}, "networks.zones[0].workers: Invalid value"),
)
def test_what_admission_refuses_is_not_planned(changes: dict[str, Any], path: str) -> None:
    with pytest.raises(Malformed) as caught:
        planned("aws", changes)

    assert path in str(caught.value)


def test_a_vpc_without_subnets_left_is_an_error() -> None:
    zones = [
        {
            "name": f"z{i}",
            "workers": f"10.0.{i}.0/28",
            "internal": f"10.0.{i}.16/28",
            "public": f"10.0.{i}.32/28",
        }
        for i in range(86)
    ]
    networking = replace(cloudsites.site("aws")).networking.model_copy(
        update={"ip_families": ["IPv4", "IPv6"], "nodes": "10.0.0.0/8"}
    )

    with pytest.raises(Malformed, match=r"networks.zones\[85\]: 2600:.*/56 has no subnets left"):
        planned("aws", {"networks/zones": zones}, networking=networking)
