"""Announcements of addresses, and the links that they are sent on."""

from __future__ import annotations

from typing import Any

import pytest

from workers.loadbalancer.links import announcing
from workers.loadbalancer.links.addresses import Link, links_of

MAC = bytes.fromhex("020000000a01")


def test_an_ipv4_address_is_announced_by_arp() -> None:
    """A request for the own address (RFC 5227, ARP announcement)."""
    assert announcing.frame(MAC, "10.0.0.5").hex(" ", 2) == (
        "ffff ffff ffff 0200 0000 0a01 0806"
        " 0001 0800 0604 0001 0200 0000 0a01 0a00 0005 0000 0000 0000 0a00 0005"
    )


def test_an_ipv6_address_is_announced_by_an_advertisement() -> None:
    """Unsolicited, overriding, from the address itself to all nodes (RFC 4861, 7.2.6)."""
    frame = announcing.frame(MAC, "fd00::5")
    assert frame[:14].hex(" ", 2) == "3333 0000 0001 0200 0000 0a01 86dd"
    assert frame[14:22].hex(" ", 2) == "6000 0000 0020 3aff"
    assert frame[22:38].hex() == "fd00" + "0" * 27 + "5"
    assert frame[38:54].hex() == "ff02" + "0" * 27 + "1"
    assert frame[54:].hex(" ", 2) == (
        "8800 5093 2000 0000 fd00 0000 0000 0000 0000 0000 0000 0005 0201 0200 0000 0a01"
    )


def test_announcements_of_others_are_understood() -> None:
    assert announcing.announced_by(announcing.frame(MAC, "10.0.0.5")[14:]) == "10.0.0.5"
    assert announcing.advertised_by(announcing.frame(MAC, "fd00::5")[54:]) == "fd00::5"


@pytest.mark.parametrize(
    "packet",
    [
        pytest.param("0001080006040001020000000a010a0000050000000000000a000006", id="a-request"),
        pytest.param("0001080006040001020000000a01000000000000000000000a000005", id="a-probe"),
        pytest.param("0001080006040001020000000a010a0000", id="too-short"),
    ],
)
def test_other_arp_packets_announce_nothing(packet: str) -> None:
    assert announcing.announced_by(bytes.fromhex(packet)) is None


def test_a_solicited_advertisement_announces_nothing() -> None:
    solicited = bytearray(announcing.frame(MAC, "fd00::5")[54:])
    solicited[4] |= 0x40
    assert announcing.advertised_by(bytes(solicited)) is None


def link(name: str, *subnets: str, kind: str = "ether", flags: str = "UP") -> dict[str, Any]:
    found = [subnet.split("/") for subnet in subnets]
    addresses = [{"local": one, "prefixlen": int(length), "scope": "global"} for one, length in found]
    return {
        "ifname": name,
        "link_type": kind,
        "address": "02:00:00:00:0a:01",
        "flags": [flags],
        "addr_info": addresses,
    }


@pytest.mark.parametrize(
    ("links", "address", "expected"),
    [
        pytest.param([link("eth0", "10.0.0.1/24")], "10.0.0.5", "eth0", id="in-its-subnet"),
        pytest.param([link("eth0", "fd00::1/64")], "fd00::5", "eth0", id="ipv6"),
        pytest.param([link("eth0", "10.0.0.1/24")], "10.0.1.5", None, id="elsewhere"),
        pytest.param(
            [link("eth0", "10.0.0.1/16"), link("eth1", "10.0.0.2/24")], "10.0.0.5", "eth1", id="the-smaller"
        ),
        pytest.param([link("eth0", "10.0.0.1/24", flags="DOWN")], "10.0.0.5", None, id="down"),
        pytest.param([link("lo", "10.0.0.1/24", kind="loopback")], "10.0.0.5", None, id="loopback"),
        pytest.param([link("eth0", "10.0.0.5/32")], "10.0.0.5", None, id="an-added-address-is-no-subnet"),
    ],
)
def test_an_address_is_on_the_link_of_its_subnet(
    links: list[dict[str, Any]], address: str, expected: str | None
) -> None:
    assert links_of([address], links) == ({address: Link(expected, MAC)} if expected else {})
