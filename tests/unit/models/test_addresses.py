"""Addresses and prefixes are read as Go reads them."""

from __future__ import annotations

import pytest

from windowbox.models import addresses


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("10.0.0.0/16", "10.0.0.0/16"),
        ("10.0.7.9/16", "10.0.0.0/16"),
        ("10.0.0.0/0", "0.0.0.0/0"),
        ("10.0.0.1/32", "10.0.0.1/32"),
        ("FD00:10::1/56", "fd00:10::/56"),
        ("1:2:3:4:5:6:7::/128", "1:2:3:4:5:6:7:0/128"),
        ("::10.0.0.1/128", "::a00:1/128"),
        ("::/0", "::/0"),
    ],
)
def test_a_prefix_may_have_host_bits(text: str, found: str) -> None:
    assert str(addresses.prefix(text)) == found


@pytest.mark.parametrize(
    "text",
    [
        *("10.0.0.0/016", "10.0.0.0/00", "fd00::/064", "10.0.0.0/33", "::/129", "10.0.0.0/9999"),
        *("10.0.0.0", "10.0.0.0/", "/16", "", "/", "10.0.0.0/255.255.0.0", "10.0.0.0/0.0.255.255"),
        *("10.0.0.0/+8", "10.0.0.0/-1", "10.0.0.0/ 8", " 10.0.0.0/8", "10.0.0.0/8 ", "10.0.0.0/8/8"),
        *("010.0.0.0/8", "10.0.0/16", "10.0.0.0.0/16", "0xa.0.0.0/8", "10.0.0.٠/8", "10.0.0.0/٨", "10/8"),
        *("fe80::%eth0/64", "fe80::1%1/128", "::ffff:10.0.0.0/112", "::ffff:a00:0/112", "fd00:::/64"),
        *("10.0.0.0/8\n", "1" * 9999, "a/\n", "1:2:3:4:5:6:7:8::/64", "12345::/64"),
    ],
    ids=repr,
)
def test_what_go_reads_otherwise_is_no_prefix(text: str) -> None:
    assert addresses.prefix(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10.0.0.01",
        "10.0.0.1/32",
        "fe80::1%eth0",
        "::ffff:127.0.0.1",
        "::ffff:7f00:1",
        "127.1",
        "2130706433",
    ],
)
def test_what_go_reads_otherwise_is_no_address(text: str) -> None:
    assert addresses.address(text) is None


def test_an_address_has_one_spelling() -> None:
    assert str(addresses.address("FD00:0::01")) == "fd00::1"
