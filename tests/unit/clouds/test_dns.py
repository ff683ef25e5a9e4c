"""How clouds name hosted zones."""

from __future__ import annotations

import pytest

from clouds import table
from windowbox.errors import Malformed
from windowbox.models.clouds import BY_DNS_TYPE
from windowbox.models.gardener.dnsrecord import DNSRecordSpec
from workers.dns.record import cloudzones

ZONES = ("example.org", "sub.example.org", "a.b-c", "a-b.c")


@pytest.mark.parametrize("cloud", sorted(BY_DNS_TYPE.values()))
def test_a_zone_is_found_by_each_of_its_names(cloud: str) -> None:
    dns = table.cloud(cloud).dns
    assert dns
    for zone in ZONES:
        for spelling in (zone, zone.upper() + ".", dns.zone_id(zone), dns.reported(zone, {"project": "p"})):
            assert dns.named(spelling, ZONES) == zone
    assert dns.named("other.org", ZONES) is None


def test_a_record_lies_in_the_longest_zone_around_it_or_in_the_one_that_it_names() -> None:
    dns = table.cloud("aws").dns
    assert dns
    spec = {
        "type": "aws-route53",
        "name": "a.sub.example.org",
        "recordType": "A",
        "values": [],
        "secretRef": {},
    }
    outer, inner = (dns.zone_id(zone) for zone in ZONES[:2])

    def chosen(zone: str | None, status: str | None) -> str:
        return cloudzones.zone_for(DNSRecordSpec.model_validate(spec | {"zone": zone}), status, ZONES)

    assert chosen(None, None) == "sub.example.org"
    assert chosen(None, outer) == "example.org"
    assert chosen(outer, inner) == "example.org"
    with pytest.raises(Malformed, match="Z0123' is no hosted zone"):
        chosen("Z0123", inner)
