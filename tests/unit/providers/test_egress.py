"""Which addresses a kubeconfig in a Secret may have us connect to."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest

from tests.support import loopback
from windowbox.clients.kubernetes import kubeconfigs
from windowbox.clients.kubernetes.egress import Egress
from windowbox.errors import Malformed

OWN = Egress((ip_network("10.0.0.0/8"), ip_network("fd00::/8")), (ip_network("10.1.2.3/32"),))


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",
        "0.1.2.3",
        "127.0.0.1",
        "127.255.255.254",
        "169.254.169.254",
        "100.100.100.200",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1",
        "fd00:ec2::254",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "::127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b::169.254.169.254",
        "2002:7f00:1::1",
    ],
)
def test_loopback_and_link_local_are_denied_however_they_are_spelled(address: str) -> None:
    assert not Egress().permits(ip_address(address))
    assert not Egress().permits_host(address)


@pytest.mark.parametrize(
    ("address", "permitted"),
    [
        ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("64:ff9b::a00:1", False),
        ("fd00::1", False),
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("192.0.2.1", True),
        ("2001:db8::1", True),
    ],
)
def test_own_networks_are_denied_but_for_exceptions(address: str, permitted: bool) -> None:
    assert OWN.permits(ip_address(address)) is permitted


def test_exceptions_reach_into_what_is_always_denied() -> None:
    assert loopback.EGRESS.permits(ip_address("127.0.0.1"))
    assert loopback.EGRESS.permits(ip_address("::1"))
    assert not loopback.EGRESS.permits(ip_address("169.254.169.254"))


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254"])
@pytest.mark.parametrize("where", ["server", "proxy-url"])
def test_a_denied_address_in_a_kubeconfig_is_named(host: str, where: str) -> None:
    good, bad = "https://api.example.com", f"https://{host}:6443"
    server, proxy = (bad, None) if where == "server" else (good, bad)
    with pytest.raises(Malformed, match=rf"it: the kubeconfig's {where} is at .* egress\.denied"):
        kubeconfigs.check_addresses(server, proxy, Egress(), "it")


@pytest.mark.parametrize(
    "path",
    ["/latest/meta-data/%2e%2e", "/a/../b", "/./a", "/" + "a" * 256, "/a b", "/a;b", "/a\\b", "/ä"],
)
def test_a_path_that_may_mean_another_one_is_refused(path: str) -> None:
    with pytest.raises(Malformed, match="the path of the kubeconfig's server"):
        kubeconfigs.check_addresses(f"https://api.example.com{path}", None, Egress(), "it")


@pytest.mark.parametrize("path", ["", "/", "/k8s/clusters/c-m-abc12", "/apis/v1/proxy/a_b/~c"])
def test_a_plain_path_is_taken(path: str) -> None:
    kubeconfigs.check_addresses(f"https://api.example.com{path}", None, Egress(), "it")
