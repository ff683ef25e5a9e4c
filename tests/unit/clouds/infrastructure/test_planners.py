"""What plans of all clouds have in common."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from ipaddress import ip_network
from typing import Any

import pytest

from clouds import table
from clouds.frame import inventory
from clouds.frame.infrastructure import Plan, Site
from clouds.frame.inventory import CloudObject, Found, Reference
from tests.support import cloudsites
from tests.support.cases import cases
from windowbox.errors import Malformed

_RICH: dict[str, dict[str, Any]] = {
    "alicloud": {
        "networks/vpc": {"id": "vpc-1", "gardenerManagedNATGateway": True},
        "networks/zones/0/natGateway": {"eipAllocationID": "eip-1"},
        "networks/zones/0/worker": "10.250.0.0/19",
        "networks/zones/0/workers": "10.250.64.0/19",
    },
    "aws": {
        "networks/vpc": {"id": "vpc-1", "gatewayEndpoints": ["s3"]},
        "networks/zones/0/elasticIPAllocationID": "eipalloc-1",
        "ignoreTags": {"keys": ["a"], "keyPrefixes": ["b"]},
    },
    "azure": {
        "networks/vnet": {"name": "vnet", "resourceGroup": "group"},
        "networks/zones/0/serviceEndpoints": ["Microsoft.Sql"],
        "networks/zones/0/natGateway": {
            "enabled": True,
            "idleConnectionTimeoutMinutes": 4,
            "ipAddresses": [{"name": "ip", "resourceGroup": "group"}],
        },
        "identity": {"name": "identity", "resourceGroup": "group", "acrAccess": True},
    },
    "gcp": {
        "networks/vpc": {"name": "vpc", "cloudRouter": {"name": "router"}},
        "networks/internal": "10.251.0.0/24",
        "networks/cloudNAT": {
            "minPortsPerVM": 64,
            "natIPNames": [{"name": "ip"}],
            "endpointIndependentMapping": {"enabled": True},
        },
        "networks/flowLogs": {"flowSampling": 0.5},
    },
    "openstack": {
        "floatingPoolName": "fp-mine",
        "networks/id": "7c6a1f0e-5b0a-4a57-9a3c-1e1b7a3b6a55",
        "networks/router": {"id": "router"},
        "networks/shareNetwork": {"enabled": True},
    },
}
"""Changes of the example's config in which as many fields as possible are set."""
CLOUDS = table.TYPES
_HOSTILE: tuple[Any, ...] = (
    *(None, "", 0, -1, 1.5, True, 2**70, "*", "../..", "\u0000", "x" * 5_000, "10.0.0.0/8", "fd00::/8"),
    *([], [1], ["a"], [None], [[]], {}, {"a": None}, [{}] * 2_000),
)


def _existing(references: list[Reference]) -> Found:
    return cloudsites.found(*(CloudObject(one.kind, one.id) for one in references))


def _paths(value: Any, head: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*head, key)
        yield from _paths(inner, (*head, key))


def _hostile_configs(config: object) -> Iterator[object]:
    """The config with each of its values exchanged for each hostile one."""
    yield from _HOSTILE
    for path in _paths(config):
        for value in _HOSTILE:
            found: Any = deepcopy(config)
            target = found
            for key in path[:-1]:
                target = target[key]
            target[path[-1]] = value
            yield found


def _check(plan: Plan) -> None:
    """That others can use the plan, or the inventory refuses it."""
    for cidr in [*(one.cidr for one in plan.subnets), *(one.source for one in plan.openings), *plan.egress]:
        ip_network(cidr)
    inventory.encoded(plan.objects)


@pytest.mark.parametrize("rich", [pytest.param(False, id="example"), pytest.param(True, id="rich")])
@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_hostile_config_is_malformed_or_planned(cloud: str, rich: bool) -> None:
    site, planner = cloudsites.site(cloud, _RICH.get(cloud) if rich else None), cloudsites.planner(cloud)
    for config in _hostile_configs(site.config):
        changed = replace(site, config=config)
        try:
            _check(planner.plan(changed, _existing(planner.references(changed))))
        except Malformed:
            continue


@pytest.mark.parametrize("cloud", CLOUDS)
@cases("value", ("number", 1), ("list", []), ("mapping", {}), ("text", "x"))
def test_a_hostile_state_is_no_harm(cloud: str, value: object) -> None:
    site = cloudsites.site(cloud)
    state = cloudsites.planned(cloud).state
    fields = dict.fromkeys(state["data"], value) if isinstance(state["data"], dict) else None

    for data in (value, fields):
        _check(cloudsites.planner(cloud).plan(replace(site, state={**state, "data": data}), {}))


@pytest.mark.parametrize("rich", [pytest.param(False, id="example"), pytest.param(True, id="rich")])
@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_plan_stays_as_it_is(cloud: str, rich: bool) -> None:
    """ALL-F4: with the state of the run before, after a restart or on another seed."""
    site, planner = cloudsites.site(cloud, _RICH.get(cloud) if rich else None), cloudsites.planner(cloud)
    existing = _existing(planner.references(site))
    first = planner.plan(site, existing)

    assert planner.plan(site, existing) == first
    assert planner.plan(replace(site, state=first.state), existing) == first


@pytest.mark.parametrize("cloud", CLOUDS)
def test_two_shoots_have_no_object_in_common(cloud: str) -> None:
    site, planner = cloudsites.site(cloud), cloudsites.planner(cloud)
    one, other = ({each.id for each in _plan(site, name).objects} for name in ("shoot--a--b", "shoot--a--c"))

    assert one.isdisjoint(other)
    assert len(one) == len(planner.plan(site, {}).objects)


def _plan(site: Site, technical_id: str) -> Plan:
    return cloudsites.planner(site.account.split("-")[0]).plan(replace(site, technical_id=technical_id), {})


@pytest.mark.parametrize("cloud", ["aws", "azure", "gcp"])
@cases(
    "pods error",
    ("no-range", "nonsense", "is no CIDR"),
    ("bits-behind-the-prefix", "100.96.0.1/11", "must be valid canonical CIDR"),
)
def test_ranges_of_the_shoot_that_no_policy_can_have_are_refused(cloud: str, pods: str, error: str) -> None:
    site = cloudsites.site(cloud)
    networking = site.networking.model_copy(update={"pods": pods})

    with pytest.raises(Malformed, match=f"spec.networking.pods: Invalid value: .*: {error}"):
        cloudsites.planner(cloud).plan(replace(site, networking=networking), {})


@pytest.mark.parametrize("cloud", ["alicloud", "aws", "azure"])
def test_too_many_zones_are_refused(cloud: str) -> None:
    zones = [{"name": i if cloud == "azure" else f"zone-{i}"} for i in range(101)]

    with pytest.raises(Malformed, match=r"networks\.zones: Too many: 101: must have at most 100 items"):
        cloudsites.planned(cloud, {"networks/zones": zones})
