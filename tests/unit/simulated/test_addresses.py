"""Addresses of simulated nodes."""

from __future__ import annotations

import pytest

from sandbox.simulated import nodes, simulatedchildren
from tests.support.cases import cases
from windowbox.errors import Malformed


def test_nodes_are_counted_through_the_network() -> None:
    assert nodes.addresses("127.77.0.0/24", 3) == ["127.77.0.1", "127.77.0.2", "127.77.0.3"]
    assert nodes.addresses("127.77.0.0/24", 0) == []


def test_two_sandboxes_share_no_addresses() -> None:
    assert simulatedchildren.network(40001) == "127.156.65.0/24"
    assert simulatedchildren.network(40002) == "127.156.66.0/24"


@cases(
    "network count reason",
    ("an-address", "127.77.0.1/24", 1, "host bits"),
    ("not-loopback", "10.0.0.0/24", 1, "loopback"),
    ("ipv6", "::1/128", 1, "write it like 127"),
    ("too-small", "127.77.0.0/30", 3, "no room for 3"),
)
def test_an_unusable_network_is_refused(network: str, count: int, reason: str) -> None:
    with pytest.raises(Malformed, match=reason):
        nodes.addresses(network, count)
