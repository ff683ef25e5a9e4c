"""Plans of Infrastructures of type azure."""

from __future__ import annotations

from typing import Any

import pytest

from clouds.frame.infrastructure import Opening, Plan, Subnet
from clouds.frame.inventory import CloudObject
from tests.support.cases import cases
from tests.support.cloudsites import ID, by_name, planned
from tests.support.rules import rule
from windowbox.errors import Malformed

_WORKERS = {"networks/zones": None, "networks/workers": "10.250.0.0/19"}
_GATEWAY = _WORKERS | {"networks/natGateway": {"enabled": True, "zone": 1}}
_IN_VNET = {"networks/vnet": {"name": "theirs", "resourceGroup": "group"}}
_VNET = CloudObject("vnet", "group/theirs")
_IDENTITY = {"identity": {"name": "workers", "resourceGroup": "group", "acrAccess": True}}
_ANNOTATION = "migration.azure.provider.extensions.gardener.cloud/zone"
_HEAD = f"/subscriptions/5ab5c000-0000-4000-a000-000000000001/resourceGroups/{ID}"
_NETWORK = f"{_HEAD}/providers/Microsoft.Network"
_OWN_IP = f"{ID}-nat-gateway-ip"


def _networks(plan: Plan) -> Any:
    return plan.provider_status["networks"]


def _subnets(plan: Plan) -> list[dict[str, Any]]:
    """Those of the status, without the gateways."""
    return [{name: one[name] for name in one if name != "natGatewayId"} for one in _networks(plan)["subnets"]]


def test_the_status_of_the_example() -> None:
    plan = planned("azure")

    assert plan.provider_status == {
        "apiVersion": "azure.provider.extensions.gardener.cloud/v1alpha1",
        "kind": "InfrastructureStatus",
        "networks": {
            "vnet": {"name": "shoot--garden--example"},
            "subnets": [
                {
                    "name": "shoot--garden--example-nodes-z1",
                    "purpose": "nodes",
                    "zone": "1",
                    "natGatewayId": f"{_NETWORK}/natGateways/shoot--garden--example-nat-gateway-z1",
                },
                {
                    "name": "shoot--garden--example-nodes-z2",
                    "purpose": "nodes",
                    "zone": "2",
                    "natGatewayId": f"{_NETWORK}/natGateways/shoot--garden--example-nat-gateway-z2",
                },
            ],
            "layout": "MultipleSubnet",
            "outboundAccessType": "NATGateway",
        },
        "resourceGroup": {"name": "shoot--garden--example"},
        "routeTables": [{"purpose": "nodes", "name": "worker_route_table"}],
        "securityGroups": [{"purpose": "nodes", "name": "shoot--garden--example-workers"}],
        "zoned": True,
    }


@rule("ALL-F4")
def test_the_state_of_the_example() -> None:
    ips = [f"{_NETWORK}/publicIPAddresses/{ID}-nat-gateway-z{i}-ip" for i in (1, 2)]
    gateways = [f"{_NETWORK}/natGateways/{ID}-nat-gateway-z{i}" for i in (1, 2)]
    subnets = [f"{_NETWORK}/virtualNetworks/{ID}/subnets/{ID}-nodes-z{i}" for i in (1, 2)]

    assert planned("azure").state == {
        "apiVersion": "azure.provider.extensions.gardener.cloud/v1alpha1",
        "kind": "InfrastructureState",
        "data": {
            "ids/Microsoft.Resources/resourceGroups": _HEAD,
            "ids/Microsoft.Network/virtualNetworks": f"{_NETWORK}/virtualNetworks/{ID}",
            "ids/Microsoft.Network/routeTables": f"{_NETWORK}/routeTables/worker_route_table",
            "ids/Microsoft.Network/networkSecurityGroups": f"{_NETWORK}/networkSecurityGroups/{ID}-workers",
            f"Microsoft.Network/publicIPAddresses/{ID}/{ID}-nat-gateway-z1-ip": ips[0],
            f"Microsoft.Network/publicIPAddresses/{ID}/{ID}-nat-gateway-z2-ip": ips[1],
            f"Microsoft.Network/natGateways/{ID}-nat-gateway-z1": gateways[0],
            f"Microsoft.Network/natGateways/{ID}-nat-gateway-z2": gateways[1],
            f"Microsoft.Network/virtualNetworks/subnets/{ID}-nodes-z1": subnets[0],
            f"Microsoft.Network/virtualNetworks/subnets/{ID}-nodes-z2": subnets[1],
        },
        "managedItems": [
            {"kind": "Microsoft.Resources/resourceGroups", "id": _HEAD},
            *({"kind": "Microsoft.Network/natGateways", "id": one} for one in gateways),
            {
                "kind": "Microsoft.Network/networkSecurityGroups",
                "id": f"{_NETWORK}/networkSecurityGroups/{ID}-workers",
            },
            *({"kind": "Microsoft.Network/publicIPAddresses", "id": one} for one in ips),
            {"kind": "Microsoft.Network/routeTables", "id": f"{_NETWORK}/routeTables/worker_route_table"},
            {"kind": "Microsoft.Network/virtualNetworks", "id": f"{_NETWORK}/virtualNetworks/{ID}"},
            *({"kind": "Microsoft.Network/virtualNetworks/subnets", "id": one} for one in subnets),
        ],
    }


def test_one_subnet_for_all_zones() -> None:
    plan = planned("azure", _WORKERS)

    assert _networks(plan) == {
        "vnet": {"name": ID},
        "subnets": [{"name": f"{ID}-nodes", "purpose": "nodes"}],
        "layout": "SingleSubnet",
        "outboundAccessType": "LoadBalancer",
    }
    assert plan.subnets == (Subnet("10.250.0.0/19"),)
    assert plan.egress == ()
    assert by_name(plan, "nat-gateway") == by_name(plan, "public-ip") == {}
    assert plan.networking is None


@pytest.mark.parametrize("zoned", [True, False])
def test_a_shoot_without_zones_has_no_availability_set(zoned: bool) -> None:
    """Its pools get scale sets, which belong to the Worker (AZU-W5)."""
    plan = planned("azure", _WORKERS | {"zoned": zoned})

    assert plan.provider_status.get("zoned") is (True if zoned else None)
    assert "availabilitySets" not in plan.provider_status


def test_a_gateway_for_one_subnet() -> None:
    plan = planned("azure", _WORKERS | {"networks/natGateway": {"enabled": True}})

    assert _networks(plan)["subnets"] == [
        {
            "name": f"{ID}-nodes",
            "purpose": "nodes",
            "natGatewayId": f"{_NETWORK}/natGateways/{ID}-nat-gateway",
        }
    ]
    assert _networks(plan)["outboundAccessType"] == "NATGateway"
    assert by_name(plan, "public-ip")[_OWN_IP].properties["zone"] == ""
    assert plan.egress == (f"{by_name(plan, 'public-ip')[_OWN_IP].properties['address']}/32",)


def test_egress_is_by_gateways_only_if_each_subnet_has_one() -> None:
    plan = planned("azure", {"networks/zones/1/natGateway": None})

    assert ["natGatewayId" in one for one in _networks(plan)["subnets"]] == [True, False]
    assert _networks(plan)["outboundAccessType"] == "LoadBalancer"
    assert len(plan.egress) == 1


def test_a_gateway_in_another_zone_has_another_address() -> None:
    first = planned("azure", _GATEWAY)
    again = planned("azure", _GATEWAY, state=first.state)
    moved = planned("azure", _GATEWAY | {"networks/natGateway/zone": 2}, state=first.state)

    assert again == first
    assert first.egress != moved.egress
    names = ("nat-gateway", f"{ID}-nat-gateway"), ("public-ip", _OWN_IP)
    for kind, name in names:
        before, after = by_name(first, kind)[name], by_name(moved, kind)[name]
        assert before.id == after.id
        assert before.properties["guid"] != after.properties["guid"]


def test_the_timeout_of_a_gateway() -> None:
    plan = planned("azure", _GATEWAY | {"networks/natGateway/idleConnectionTimeoutMinutes": 30})

    assert by_name(plan, "nat-gateway")[f"{ID}-nat-gateway"].properties["minutes"] == 30


_IPS = {"ipAddresses": [{"name": "one", "resourceGroup": "group"}, {"name": "two", "resourceGroup": "group"}]}


@rule("AZU-I12")
def test_addresses_of_the_user_are_those_of_the_gateway() -> None:
    ips = [
        CloudObject("public-ip", f"group/{name}", properties={"address": f"198.51.100.{i}", "zone": 2})
        for i, name in enumerate(("one", "two"))
    ]

    plan = planned("azure", {"networks/zones/1/natGateway": {"enabled": True, **_IPS}}, *ips)

    assert plan.egress[1:] == ("198.51.100.0/32", "198.51.100.1/32")
    assert [one.id for one in plan.uses if one.exclusive] == ["group/one", "group/two"]
    assert list(by_name(plan, "public-ip")) == [f"{ID}-nat-gateway-z1-ip"]


@cases(
    "ip message",
    ("AZU-R1-unknown", None, "Not found: 'group/two'"),
    ("AZU-R1-used", CloudObject("public-ip", "group/two", used_by="shoot--x"), "used by shoot--x"),
    (
        "AZU-R1-location",
        CloudObject("public-ip", "group/two", properties={"location": "northeurope"}),
        "location of this public-ip is 'northeurope'",
    ),
    (
        "AZU-I12-zone",
        CloudObject("public-ip", "group/two", properties={"zone": "1"}),
        "zone of this public-ip is '1' and has to be '2'",
    ),
    (
        "AZU-I12-SKU",
        CloudObject("public-ip", "group/two", properties={"sku": "Basic"}),
        "sku of this public-ip is 'Basic' and has to be 'Standard'",
    ),
)
def test_addresses_of_the_user_exist_and_fit(ip: CloudObject | None, message: str) -> None:
    one = CloudObject("public-ip", "group/one")

    with pytest.raises(Malformed) as caught:
        planned(
            "azure", {"networks/zones/1/natGateway": {"enabled": True, **_IPS}}, one, *([ip] if ip else [])
        )

    assert str(caught.value).startswith("networks.zones[1].natGateway.ipAddresses[1].name: ")
    assert message in str(caught.value)


@rule("AZU-R1")
def test_an_existing_network_is_used_and_not_made() -> None:
    plan = planned("azure", _IN_VNET, _VNET)

    assert _networks(plan)["vnet"] == {"name": "theirs", "resourceGroup": "group"}
    assert by_name(plan, "vnet") == {}
    in_vnet = _HEAD.replace(ID, "group") + "/providers/Microsoft.Network/virtualNetworks/theirs"
    assert by_name(plan, "subnet")[f"{ID}-nodes-z1"].id == f"{in_vnet}/subnets/{ID}-nodes-z1"
    assert plan.state["data"]["ids/Microsoft.Network/virtualNetworks"] == in_vnet
    assert in_vnet not in [one["id"] for one in plan.state["managedItems"]]


@cases(
    "vnet message",
    ("AZU-R1-unknown", None, "networks.vnet.name: Not found: 'group/theirs'"),
    (
        "AZU-R1-location",
        CloudObject("vnet", "group/theirs", properties={"location": "northeurope"}),
        "networks.vnet.name: Invalid value: 'group/theirs': location of this vnet is 'northeurope'",
    ),
    (
        "AZU-R1-range",
        CloudObject("vnet", "group/theirs", properties={"cidr": "nonsense"}),
        'networks.vnet.name: Invalid value: "nonsense"',
    ),
)
def test_an_existing_network_is_there(vnet: CloudObject | None, message: str) -> None:
    with pytest.raises(Malformed) as caught:
        planned("azure", _IN_VNET, *([vnet] if vnet else []))

    assert str(caught.value).startswith(message)


@rule("AZU-R1")
def test_a_resource_group_of_the_right_name_in_another_location_needs_the_user() -> None:
    here = CloudObject("resource-group", ID, properties={"location": "westeurope"})
    there = CloudObject("resource-group", ID, properties={"location": "northeurope"})

    assert planned("azure", None, here) == planned("azure")
    with pytest.raises(
        Malformed, match=r"^spec\.region: the resource group .* is in 'northeurope' instead of"
    ):
        planned("azure", None, there)


@rule("AZU-S5")
def test_an_identity_is_looked_up() -> None:
    identity = CloudObject("identity", "group/workers", properties={"clientID": "c1", "location": "anywhere"})
    id_ = _HEAD.replace(ID, "group") + "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/workers"

    plan = planned("azure", _IDENTITY, identity)

    assert plan.provider_status["identity"] == {"id": id_, "clientID": "c1", "acrAccess": True}
    assert plan.state["data"]["managed_identity_id"] == id_
    assert plan.state["data"]["managed_identity_client_id"] == "c1"


@rule("AZU-S5")
def test_an_unknown_identity_is_an_error() -> None:
    with pytest.raises(Malformed, match=r"^identity\.name: Not found: 'group/workers'"):
        planned("azure", _IDENTITY)


def test_an_identity_without_client_id_gets_one_and_reads_no_registry_by_default() -> None:
    changes = {"identity": {"name": "workers", "resourceGroup": "group"}}
    first, second = (planned("azure", changes, CloudObject("identity", "group/workers")) for _ in range(2))

    assert first.provider_status["identity"]["acrAccess"] is False
    assert len(first.provider_status["identity"]["clientID"]) == 36
    assert first == second


_MIGRATED = [
    {"name": f"{ID}-nodes-z1", "purpose": "nodes", "zone": "1"},
    {"name": f"{ID}-nodes", "purpose": "nodes", "zone": "2", "migrated": True},
]
_ZONES = [{"name": 1, "cidr": "10.250.32.0/19"}, {"name": 2, "cidr": "10.250.0.0/19"}]


@cases(
    "more",
    ("AZU-U5-annotation", {"annotations": {_ANNOTATION: "2"}}),
    ("AZU-U5-state", {"state": {"data": {_ANNOTATION: "2"}}}),
    ("AZU-U5-former-state", {"state": planned("azure", _WORKERS).state}),
    (
        "AZU-U5-other-annotation",
        {"state": planned("azure", _WORKERS).state, "annotations": {_ANNOTATION: "9"}},
    ),
)
def test_the_zone_with_the_former_range_keeps_the_names(more: dict[str, Any]) -> None:
    plan = planned("azure", {"networks/zones": _ZONES}, **more)

    assert _subnets(plan) == _MIGRATED
    assert plan.state["data"][_ANNOTATION] == "2"
    assert planned("azure", {"networks/zones": _ZONES}, state=plan.state) == plan


@rule("AZU-U5")
def test_a_migrated_zone_keeps_its_gateway_in_the_same_zone() -> None:
    before = planned("azure", _GATEWAY)
    zones = [{"name": 1, "cidr": "10.250.0.0/19", "natGateway": {"enabled": True}}]

    plan = planned("azure", {"networks/zones": zones}, state=before.state)

    assert list(by_name(plan, "nat-gateway")) == [f"{ID}-nat-gateway"]
    assert plan.egress == before.egress


@rule("AZU-U5")
def test_a_shoot_that_always_had_zones_migrates_none() -> None:
    plan = planned("azure")

    assert planned("azure", state=plan.state) == plan
    assert not any(one.get("migrated") for one in _subnets(plan))


@cases(
    "changes endpoints",
    ("one-subnet", _WORKERS | {"networks/serviceEndpoints": ["Microsoft.Sql"]}, [["Microsoft.Sql"]]),
    ("zones", {"networks/zones/1/serviceEndpoints": ["Microsoft.Sql"]}, [[], ["Microsoft.Sql"]]),
)
def test_service_endpoints_are_those_of_subnets(changes: dict[str, Any], endpoints: list[list[str]]) -> None:
    plan = planned("azure", changes)

    assert [one.properties["serviceEndpoints"] for one in by_name(plan, "subnet").values()] == endpoints


@cases(
    "changes cidr plan_id",
    ("own", {"networks/vnet/ddosProtectionPlanID": "plan"}, "10.250.0.0/16", "plan"),
    ("default", _WORKERS | {"networks/vnet": {}, "networks/workers": "10.250.0.0/16"}, "10.250.0.0/16", None),
)
def test_the_virtual_network(changes: dict[str, Any], cidr: str, plan_id: str | None) -> None:
    vnet = by_name(planned("azure", changes), "vnet")[ID]

    assert (vnet.properties["cidr"], vnet.properties["ddosProtectionPlan"]) == (cidr, plan_id)


@cases(
    "changes vnet ranges",
    ("own", {}, None, ["10.250.0.0/16"]),
    (
        "default",
        _WORKERS | {"networks/vnet": {}, "networks/workers": "10.250.0.0/16"},
        None,
        ["10.250.0.0/16"],
    ),
    ("existing", _IN_VNET, _VNET, ["10.250.0.0/19", "10.250.32.0/19"]),
    (
        "existing-range",
        _IN_VNET,
        CloudObject("vnet", "group/theirs", properties={"cidr": "10.0.0.0/8"}),
        ["10.0.0.0/8"],
    ),
)
def test_the_security_group_opens_everything_for_the_network(
    changes: dict[str, Any], vnet: CloudObject | None, ranges: list[str]
) -> None:
    plan = planned("azure", changes, *([vnet] if vnet else []))

    sources = [*ranges, "100.96.0.0/11"]
    wanted = [Opening(protocol, source=source) for source in sources for protocol in ("TCP", "UDP")]
    assert list(plan.openings) == wanted


@cases(
    "changes path",
    ("AZU-I3", {"networks/vnet": {"name": "theirs"}}, "networks.vnet: Invalid value"),
    ("AZU-I5", {"networks/zones": None}, "networks.workers: Forbidden"),
    ("AZU-I10", {"networks/zones/1/name": 1}, "networks.zones[1].name: Duplicate value"),
    ("AZU-I10-range", {"networks/zones/1/cidr": "x"}, "networks.zones[1].cidr: Invalid value"),
)
def test_what_admission_refuses_is_not_planned(changes: dict[str, Any], path: str) -> None:
    with pytest.raises(Malformed) as caught:
        planned("azure", changes)

    assert path in str(caught.value)
