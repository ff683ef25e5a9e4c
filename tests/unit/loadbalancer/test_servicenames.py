"""Host names of a Service, also those that it had before."""

from __future__ import annotations

from typing import Any

from tests.support.cases import cases
from tests.support.lbobjects import service
from windowbox.clients.nameserver import Nameserver
from windowbox.settings.dnssettings import DnsSettings
from windowbox.settings.lbsettings import LoadBalancerSettings
from workers.loadbalancer.service import adoption, servicenames
from workers.loadbalancer.spec import hostnames

V4, V6, LOST = "10.0.0.17", "fd00::17", "10.0.0.18"


def named(place: int, address: str = V4) -> str:
    return hostnames.hostname(f"web-{place}-{{id}}.elb.example.com", address)


def shown(*names: str, **records: str) -> dict[str, Any]:
    return {name: {"zone": "example.com", "records": records} for name in names}


@cases(
    "before addresses kept removed",
    ("AWS-X2-stays", shown(named(1), A=V4), {"IPv4": V4}, shown(named(1), A=V4), {}),
    ("lost-address", shown(named(1, LOST), A=LOST), {"IPv4": V4}, {}, shown(named(1, LOST), A=LOST)),
    (
        "lost-family",
        shown(named(1), A=V4, AAAA=V6),
        {"IPv4": V4},
        shown(named(1), A=V4),
        shown(named(1), AAAA=V6),
    ),
    ("present", shown(named(0), A=V4), {"IPv4": V4}, {}, {}),
    (
        "too-many",
        shown(*(named(place) for place in range(5)), A=V4),
        {"IPv4": V4},
        shown(*(named(place) for place in (1, 2, 3)), A=V4),
        shown(named(4), A=V4),
    ),
)
def test_a_former_name_leads_to_the_service_or_nowhere(
    before: Any, addresses: Any, kept: Any, removed: Any
) -> None:
    """Its address may be another tenant's by now."""
    assert servicenames.former(before, named(0), addresses) == servicenames.Former(kept, removed)


@cases(
    "name zone",
    ("inner", "web.elb.example.com", "elb.example.com"),
    ("outer", "web.example.com", "example.com"),
    ("apex", "example.com", "example.com"),
    ("other", "web.badexample.com", ""),
    ("keyed-by-records", "web.keyed.test", ""),
)
def test_a_name_is_in_the_smallest_zone_around_it(name: str, zone: str) -> None:
    zones: list[dict[str, Any]] = [
        {"name": one, "servers": ["127.0.0.1"]} for one in ("example.com", "elb.example.com")
    ]
    zones.append({"name": "keyed.test", "servers": ["127.0.0.1"], "key_from_record": True})
    assert Nameserver(DnsSettings.model_validate({"zones": zones})).zone_around(name) == zone


def test_a_status_with_a_name_claims_the_address_in_it() -> None:
    found = service(status={"loadBalancer": {"ingress": [{"hostname": named(1)}, {"hostname": "other"}]}})
    assert adoption.claim("shoot", found, LoadBalancerSettings()).shown == (V4,)
