"""Plans of Infrastructures of type gcp."""

from __future__ import annotations

from typing import Any

import pytest

from clouds.frame.infrastructure import Opening, Subnet
from clouds.frame.inventory import CloudObject
from tests.support.cases import cases
from tests.support.cloudsites import ID, by_name, planned
from tests.support.rules import rule
from windowbox.errors import Malformed

_IN_VPC = {"networks/vpc": {"name": "theirs", "cloudRouter": {"name": "their-router"}}}
_VPC, _ROUTER = CloudObject("vpc", "theirs"), CloudObject("router", "their-router")
_IP_NAMES = {"networks/cloudNAT": {"natIPNames": [{"name": "one"}, {"name": "two"}]}}
_IPS = [
    CloudObject("address", name, properties={"address": f"198.51.100.{i}"})
    for i, name in enumerate(("one", "two"))
]
_NAT = f"{ID}-cloud-nat"


def test_the_status_of_the_example() -> None:
    plan = planned("gcp")

    assert plan.provider_status == {
        "apiVersion": "gcp.provider.extensions.gardener.cloud/v1alpha1",
        "kind": "InfrastructureStatus",
        "networks": {
            "vpc": {
                "name": "shoot--garden--example",
                "cloudRouter": {"name": "shoot--garden--example-cloud-router"},
            },
            "subnets": [{"name": "shoot--garden--example-nodes", "purpose": "nodes"}],
        },
        "serviceAccountEmail": "",
    }


@rule("ALL-F4")
def test_the_state_of_the_example() -> None:
    plan = planned("gcp")

    assert plan.state == {
        "apiVersion": "gcp.provider.extensions.gardener.cloud/v1alpha1",
        "kind": "InfrastructureState",
        "data": {"resources_exist": "true"},
    }


def test_the_objects_of_the_example() -> None:
    plan = planned("gcp")
    head = "projects/windowbox-example"

    assert [(one.kind, one.id) for one in plan.objects] == [
        ("vpc", f"{head}/global/networks/{ID}"),
        ("subnet", f"{head}/regions/europe-west1/subnetworks/{ID}-nodes"),
        ("router", f"{head}/regions/europe-west1/routers/{ID}-cloud-router"),
        ("cloud-nat", f"{head}/regions/europe-west1/routers/{ID}-cloud-router/nats/{ID}-cloud-nat"),
        ("firewall", f"{head}/global/firewalls/{ID}-allow-internal-access"),
        ("firewall", f"{head}/global/firewalls/{ID}-allow-health-checks"),
    ]
    assert plan.subnets == (Subnet("10.250.0.0/19"),)
    assert plan.networking is None
    assert plan.uses == ()


def test_the_former_name_of_the_range_of_workers_counts() -> None:
    plan = planned("gcp", {"networks/workers": None, "networks/worker": "10.250.0.0/20"})

    assert plan.subnets == (Subnet("10.250.0.0/20"),)


@cases(
    "vpc router message",
    ("GCP-R2-VPC", None, _ROUTER, "networks.vpc.name: Not found: 'theirs'"),
    ("GCP-R2-router", _VPC, None, "networks.vpc.cloudRouter.name: Not found: 'their-router'"),
    (
        "GCP-R2-region",
        _VPC,
        CloudObject("router", "their-router", properties={"region": "europe-west3"}),
        "networks.vpc.cloudRouter.name: Invalid value: 'their-router': region of this router is 'eu",
    ),
)
def test_an_existing_vpc_and_its_router_are_there(
    vpc: CloudObject | None, router: CloudObject | None, message: str
) -> None:
    with pytest.raises(Malformed) as caught:
        planned("gcp", _IN_VPC, *(one for one in (vpc, router) if one))

    assert str(caught.value).startswith(message)


@rule("GCP-R2")
def test_an_existing_vpc_is_used_and_not_made() -> None:
    plan = planned("gcp", _IN_VPC, _VPC, _ROUTER)

    assert plan.provider_status["networks"]["vpc"] == {
        "name": "theirs",
        "cloudRouter": {"name": "their-router"},
    }
    assert {one.kind for one in plan.objects} == {"subnet", "cloud-nat", "firewall"}
    assert by_name(plan, "cloud-nat")[_NAT].id.endswith(f"/routers/their-router/nats/{_NAT}")
    assert not any(one.exclusive for one in plan.uses)


@cases(
    "ip message",
    ("GCP-R1-unknown", None, "Not found: 'two'"),
    ("GCP-R1-used", CloudObject("address", "two", used_by="shoot--x"), "used by shoot--x"),
    (
        "GCP-R1-region",
        CloudObject("address", "two", properties={"region": "us-east1"}),
        "region of this address is 'us-east1' and has to be 'europe-west1'",
    ),
    (
        "GCP-R1-internal",
        CloudObject("address", "two", properties={"addressType": "INTERNAL"}),
        "addressType of this address is 'INTERNAL'",
    ),
    (
        "GCP-R1-IPv6",
        CloudObject("address", "two", properties={"address": "2600::1"}),
        "address of this address is '2600::1'",
    ),
)
def test_addresses_of_the_user_exist_and_are_free(ip: CloudObject | None, message: str) -> None:
    with pytest.raises(Malformed) as caught:
        planned("gcp", _IP_NAMES, _IPS[0], *([ip] if ip else []))

    assert str(caught.value).startswith("networks.cloudNAT.natIPNames[1].name: ")
    assert message in str(caught.value)


@rule("GCP-R1")
def test_addresses_of_the_user_are_those_of_the_nat() -> None:
    plan = planned("gcp", _IP_NAMES, *_IPS)

    assert plan.provider_status["networks"]["natIPs"] == [{"ip": "198.51.100.0"}, {"ip": "198.51.100.1"}]
    assert plan.egress == ("198.51.100.0/32", "198.51.100.1/32")
    assert [one.id for one in plan.uses if one.exclusive] == ["one", "two"]
    nat = by_name(plan, "cloud-nat")[_NAT].properties
    assert (nat["natIpAllocateOption"], nat["natIps"]) == ("MANUAL_ONLY", ["one", "two"])


def test_addresses_that_google_chooses_are_not_reported() -> None:
    plan = planned("gcp", {"networks/cloudNAT": {"minPortsPerVM": 64}})

    assert "natIPs" not in plan.provider_status["networks"]
    assert plan.egress == ()
    assert by_name(plan, "cloud-nat")[_NAT].properties["natIpAllocateOption"] == "AUTO_ONLY"


def test_the_subnet_for_internal_load_balancers_comes_and_goes() -> None:
    first = planned("gcp", {"networks/internal": "10.251.0.0/24"})
    second = planned("gcp", state=first.state)

    assert first.provider_status["networks"]["subnets"] == [
        {"name": f"{ID}-nodes", "purpose": "nodes"},
        {"name": f"{ID}-internal", "purpose": "internal"},
    ]
    assert by_name(first, "subnet")[f"{ID}-internal"].properties["cidr"] == "10.251.0.0/24"
    assert Opening("UDP", source="10.251.0.0/24") in first.openings
    assert first.subnets == second.subnets
    assert second == planned("gcp")


_DEFAULTS = {
    "natIpAllocateOption": "AUTO_ONLY",
    "natIps": [],
    "enableDynamicPortAllocation": False,
    "enableEndpointIndependentMapping": False,
    "logs": "ERRORS_ONLY",
    "minPortsPerVm": 2048,
    "maxPortsPerVm": 65536,
    "icmpIdleTimeoutSec": 30,
    "tcpEstablishedIdleTimeoutSec": 1200,
    "tcpTimeWaitTimeoutSec": 120,
    "tcpTransitoryIdleTimeoutSec": 30,
    "udpIdleTimeoutSec": 30,
}


@cases(
    "given changed",
    ("none", None, {}),
    (
        "dynamic",
        {"enableDynamicPortAllocation": True, "minPortsPerVM": 32, "maxPortsPerVM": 1024},
        {"enableDynamicPortAllocation": True, "minPortsPerVm": 32, "maxPortsPerVm": 1024},
    ),
    (
        "mapping",
        {"endpointIndependentMapping": {"enabled": True}},
        {"enableEndpointIndependentMapping": True},
    ),
    (
        "timeouts",
        {
            "icmpIdleTimeoutSec": 1,
            "tcpEstablishedIdleTimeoutSec": 2,
            "tcpTimeWaitTimeoutSec": 3,
            "tcpTransitoryIdleTimeoutSec": 4,
            "udpIdleTimeoutSec": 0,
        },
        {
            "icmpIdleTimeoutSec": 1,
            "tcpEstablishedIdleTimeoutSec": 2,
            "tcpTimeWaitTimeoutSec": 3,
            "tcpTransitoryIdleTimeoutSec": 4,
            "udpIdleTimeoutSec": 0,
        },
    ),
)
def test_what_a_cloud_nat_does(given: dict[str, Any] | None, changed: dict[str, Any]) -> None:
    plan = planned("gcp", {"networks/cloudNAT": given} if given is not None else {})

    assert by_name(plan, "cloud-nat")[_NAT].properties == {
        "subnet": f"{ID}-nodes",
        **_DEFAULTS,
        **changed,
    }


@cases(
    "given logs",
    ("none", None, None),
    (
        "sampling",
        {"flowSampling": 0.0},
        {"aggregationInterval": "INTERVAL_5_MIN", "flowSampling": 0.0, "metadata": "EXCLUDE_ALL_METADATA"},
    ),
    (
        "others",
        {"aggregationInterval": "INTERVAL_30_SEC", "metadata": "INCLUDE_ALL_METADATA"},
        {"aggregationInterval": "INTERVAL_30_SEC", "flowSampling": 0.5, "metadata": "INCLUDE_ALL_METADATA"},
    ),
)
def test_flow_logs_of_the_subnet_for_machines(
    given: dict[str, Any] | None, logs: dict[str, Any] | None
) -> None:
    plan = planned("gcp", {"networks/flowLogs": given} if given is not None else {})

    assert by_name(plan, "subnet")[f"{ID}-nodes"].properties["flowLogs"] == logs


def test_the_firewall_opens_everything_inside_and_node_ports_for_health_checks() -> None:
    inside = [
        Opening(protocol, source=source)
        for source in ("100.96.0.0/11", "10.250.0.0/19")
        for protocol in ("TCP", "UDP")
    ]
    checks = [
        Opening(protocol, 30000, 32767, source)
        for source in ("35.191.0.0/16", "209.85.204.0/22", "209.85.152.0/22", "130.211.0.0/22")
        for protocol in ("TCP", "UDP")
    ]

    assert list(planned("gcp").openings) == [*inside, *checks]


@cases(
    "changes path",
    ("GCP-I1", {"networks/vpc": {}}, "networks.vpc.name: Invalid value"),
    ("GCP-I2", {"networks/vpc": {"name": "theirs"}}, "networks.vpc.cloudRouter: Invalid value"),
    ("GCP-I3", {"networks/workers": "x"}, "networks.workers: Invalid value"),
)
def test_what_admission_refuses_is_not_planned(changes: dict[str, Any], path: str) -> None:
    with pytest.raises(Malformed) as caught:
        planned("gcp", changes)

    assert path in str(caught.value)
