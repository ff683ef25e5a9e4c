"""Infrastructures of type openstack: their status, their addresses, and what has to exist."""

from __future__ import annotations

from typing import Any

import pytest

from clouds import table
from clouds.frame.infrastructure import NODE_PORTS, Plan, Subnet
from clouds.frame.inventory import CloudObject
from clouds.frame.operator.existing import described
from tests.support.cases import cases
from tests.support.cloudsites import planned, site
from tests.support.rules import rule
from windowbox.errors import Malformed

NAME = "shoot--garden--example"
POOL = "1755484e-3dfd-41b4-9b4d-8b473e23c5b3"
ROUTER = "9a73f9e5-4bfb-4339-86c2-0ebe3812b95a"
NETWORK = "68b8d003-97d8-429b-92ba-9528c1eaf962"
SUBNET = "60a984e0-b2df-45d4-8120-22070784ca5d"
GROUP = "7efead2f-3c17-433a-abaf-e9c852d79080"
SHARE = "578f23d6-41d1-428f-910b-a0618f1c79f5"
ADDRESS = "255.0.174.3"
EXISTING = "7c6a1f0e-5b0a-4a57-9a3c-1e1b7a3b6a55"
SHARED = {"networks/shareNetwork": {"enabled": True}}
OWN_ROUTER = {"networks/router": {"id": EXISTING}}


def router(**properties: Any) -> CloudObject:
    return CloudObject("router", EXISTING, properties=properties)


@rule("ALL-F4")
def test_the_example_has_the_status_of_the_contract() -> None:
    found = planned("openstack")

    assert found.provider_status == {
        "apiVersion": "openstack.provider.extensions.gardener.cloud/v1alpha1",
        "kind": "InfrastructureStatus",
        "networks": {
            "id": NETWORK,
            "name": NAME,
            "floatingPool": {"id": POOL, "name": "fp-internet"},
            "router": {"id": ROUTER, "ip": ADDRESS, "externalFixedIP": [ADDRESS]},
            "subnets": [{"purpose": "nodes", "id": SUBNET}],
        },
        "node": {"keyName": NAME},
        "securityGroups": [{"purpose": "nodes", "id": GROUP, "name": NAME}],
    }
    assert found.state == {
        "apiVersion": "openstack.provider.extensions.gardener.cloud/v1alpha1",
        "kind": "InfrastructureState",
        "data": {
            "FloatingNetwork": POOL,
            "FloatingNetworkName": "fp-internet",
            "Router": ROUTER,
            "Network": NETWORK,
            "NetworkName": NAME,
            "Subnet": SUBNET,
            "SecurityGroup": GROUP,
            "SecurityGroupName": NAME,
            "KeyPair": NAME,
        },
    }
    assert found.egress == (f"{ADDRESS}/32",)
    assert (found.subnets, found.openings) == ((Subnet("10.250.0.0/19"),), NODE_PORTS)
    assert (found.networking, found.uses) == (None, ())


def test_the_example_has_the_objects_of_the_contract() -> None:
    found = planned("openstack", SHARED)

    assert [(one.kind, one.id, one.name) for one in found.objects if one.kind != "router-interface"] == [
        ("router", ROUTER, NAME),
        ("network", NETWORK, NAME),
        ("subnet", SUBNET, NAME),
        ("security-group", GROUP, NAME),
        ("key-pair", NAME, NAME),
        ("share-network", SHARE, NAME),
    ]
    port = properties(found, "router-interface")
    assert port == {"router": ROUTER, "subnet": SUBNET}
    assert properties(found, "subnet")["dnsServers"] == ["198.51.100.53"]


def properties(plan: Plan, kind: str) -> dict[str, Any]:
    return next(dict(one.properties) for one in plan.objects if one.kind == kind)


def test_a_plan_is_the_same_each_time_and_differs_between_shoots() -> None:
    at = site("openstack")
    first = planned("openstack")

    assert planned("openstack", state=first.state) == first
    ids = {one.id for one in first.objects}
    assert not ids & {one.id for one in planned("openstack", technical_id=f"{at.technical_id}-2").objects}


@rule("OST-U1")
def test_a_share_network_can_be_switched_on() -> None:
    before, after = planned("openstack"), planned("openstack", SHARED)

    assert after.objects[:-1] == before.objects
    assert after.provider_status["networks"]["shareNetwork"] == {"id": SHARE, "name": NAME}
    assert after.state["data"] == before.state["data"] | {"ShareNetwork": SHARE, "ShareNetworkName": NAME}
    off = planned("openstack", {"networks/shareNetwork": {"enabled": False}})
    assert off == before


def test_a_key_pair_is_replaced_when_the_public_key_changes() -> None:
    before, after = (planned("openstack", ssh_public_key=f"ssh-rsa {key}") for key in ("AAAA", "BBBB"))

    assert before.provider_status == after.provider_status
    assert [one.kind for one in before.objects if one not in after.objects] == ["key-pair"]


def test_the_former_name_of_workers_counts() -> None:
    found = planned("openstack", {"networks/workers": None, "networks/worker": "10.250.64.0/18"})

    assert found.subnets == (Subnet("10.250.64.0/18"),)


@cases(
    "pools",
    ("OST-R1-of-the-profile", [{"name": "other"}, {"name": "fp-internet"}]),
    ("OST-R1-of-the-region", [{"name": "fp-internet", "region": "europe-1"}]),
)
def test_floating_pools_of_the_profile_exist(pools: list[dict[str, Any]]) -> None:
    found = planned("openstack", **with_pools(pools))

    assert found.provider_status["networks"]["floatingPool"] == {"id": POOL, "name": "fp-internet"}


@cases(
    "pools",
    ("OST-R1-of-nobody", [{"name": "other"}]),
    ("OST-R1-of-another-region", [{"name": "fp-mine", "region": "asia-1"}]),
    ("OST-R1-of-a-wildcard", [{"name": "*"}]),
)
def test_other_floating_pools_have_to_be_added(pools: list[dict[str, Any]]) -> None:
    mine = {"floatingPoolName": "fp-mine"}

    with pytest.raises(Malformed, match=r"floatingPoolName: Not found: 'fp-mine'.*no such floating-pool"):
        planned("openstack", mine, **with_pools(pools))
    found = planned("openstack", mine, CloudObject("floating-pool", "fp-mine"), **with_pools(pools))
    assert found.state["data"]["FloatingNetworkName"] == "fp-mine"
    assert [(one.kind, one.exclusive) for one in found.uses] == [("floating-pool", False)]


def with_pools(pools: list[dict[str, Any]]) -> dict[str, Any]:
    profile = site("openstack").profile
    config = profile.provider_config
    assert isinstance(config, dict)
    constraints = config["constraints"] | {"floatingPools": pools}
    return {"profile": profile.model_copy(update={"provider_config": config | {"constraints": constraints}})}


@cases(
    "given pools subnet",
    ("of-the-config", "own", [{"name": "fp-internet", "defaultFloatingSubnet": "default"}], "own"),
    ("of-the-profile", None, [{"name": "fp-internet", "defaultFloatingSubnet": "default"}], "default"),
    ("of-a-wildcard", None, [{"name": "fp-*", "defaultFloatingSubnet": "default"}], "default"),
    ("of-nobody", None, [{"name": "fp-internet"}], None),
)
def test_a_router_has_a_subnet_of_the_floating_pool(
    given: str | None, pools: list[dict[str, Any]], subnet: str | None
) -> None:
    changes = {"floatingPoolSubnetName": given} if given else {}
    pool = CloudObject("floating-pool", "fp-internet")

    found = planned("openstack", changes, pool, **with_pools(pools))

    assert found.state["data"].get("FloatingPoolSubnetName") == subnet
    assert properties(found, "router")["externalSubnetName"] == subnet


@cases(
    "existing addresses egress",
    ("OST-R2-one", router(externalFixedIPs=["192.0.2.7"]), ["192.0.2.7"], ("192.0.2.7/32",)),
    (
        "OST-R2-of-both-families",
        router(externalFixedIPs=["192.0.2.7", "2001:db8::7"]),
        ["192.0.2.7", "2001:db8::7"],
        ("192.0.2.7/32", "2001:db8::7/128"),
    ),
    ("OST-R2-unsaid", router(), ["255.0.133.124"], ("255.0.133.124/32",)),
)
def test_an_existing_router_leads_out(
    existing: CloudObject, addresses: list[str], egress: tuple[str, ...]
) -> None:
    found = planned("openstack", OWN_ROUTER, existing)

    status = {"id": EXISTING, "ip": addresses[0], "externalFixedIP": addresses}
    assert found.provider_status["networks"]["router"] == status
    assert found.egress == egress
    assert "router" not in {one.kind for one in found.objects}
    assert properties(found, "router-interface")["router"] == EXISTING


@cases(
    "existing error",
    ("OST-R2-missing", [], "networks.router.id: Not found: '7c6a1f0e.*no such router"),
    ("OST-R2-none", [router(externalFixedIPs=[])], "networks.router.id: .*at least one external fixed ip"),
    ("OST-R2-text", [router(externalFixedIPs="192.0.2.7")], "networks.router.id: .*external fixed ip"),
    ("OST-R2-no-address", [router(externalFixedIPs=["192.0.2.7/24"])], "networks.router.id: .*192.0.2.7/24"),
    ("OST-R2-of-no-text", [router(externalFixedIPs=[{"ip": 1}])], "networks.router.id: .*'ip'"),
)
def test_a_router_without_external_address_is_refused(existing: list[CloudObject], error: str) -> None:
    with pytest.raises(Malformed, match=error):
        planned("openstack", OWN_ROUTER, *existing)


def test_a_router_is_as_people_add_it() -> None:
    given = ["externalFixedIPs=192.0.2.7,2001:db8::7"]
    added = described(table.cloud("openstack").existing, "router", EXISTING, given, shared=False)

    assert planned("openstack", OWN_ROUTER, added).egress == ("192.0.2.7/32", "2001:db8::7/128")


def test_an_existing_network_gets_a_new_subnet() -> None:
    mine = {"networks/id": EXISTING}

    with pytest.raises(Malformed, match=r"networks.id: Not found: '7c6a1f0e.*no such network"):
        planned("openstack", mine)
    found = planned("openstack", mine, CloudObject("network", EXISTING, properties={"name": "mine"}))

    networks = found.provider_status["networks"]
    assert (networks["id"], networks["name"]) == (EXISTING, "mine")
    assert networks["subnets"] == [{"purpose": "nodes", "id": SUBNET}]
    assert properties(found, "subnet")["network"] == EXISTING
    assert "network" not in {one.kind for one in found.objects}


@cases(
    "changes error",
    ("OST-I1", {"floatingPoolName": ""}, "floatingPoolName: Required"),
    ("OST-I2", {"floatingPoolSubnetName": "a", **OWN_ROUTER}, "floatingPoolSubnetName: Invalid"),
    ("OST-I3", {"networks/id": "mine"}, "networks.id: Invalid"),
    ("OST-I4", {"networks/router": {"id": ""}}, "networks.router.id: Invalid"),
    ("OST-I5-no-range", {"networks/workers": "10.250"}, "networks.workers: Invalid"),
    ("OST-I5-outside", {"networks/workers": "10.0.0.0/19"}, "networks.workers: .*must be a subset"),
    ("ALL-4", {"networks/unknown": True}, "networks.unknown"),
)
def test_what_admission_refuses_has_no_plan(changes: dict[str, Any], error: str) -> None:
    with pytest.raises(Malformed, match=error):
        planned("openstack", changes)


def test_a_profile_without_config_has_no_plan() -> None:
    profile = site("openstack").profile.model_copy(update={"provider_config": None})

    with pytest.raises(Malformed, match="providerConfig of the CloudProfile"):
        planned("openstack", profile=profile)


def test_accounts_have_ids_of_their_own() -> None:
    mine, yours = planned("openstack"), planned("openstack", account="openstack-000000000002")

    assert not {one.id for one in mine.objects} & {one.id for one in yours.objects} - {NAME}
    assert mine.egress != yours.egress
