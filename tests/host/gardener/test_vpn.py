"""The stand-ins of Gardener's VPN, with real OpenVPN between network namespaces."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from tests.host.gardener import tunnels
from tests.host.gardener.tunnels import ENVOY, POD, Tunnel
from tests.support.running import eventually

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("openvpn"), reason="needs root and OpenVPN: apt-get install openvpn"
)


@pytest.fixture(scope="module")
def tunnel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tunnel]:
    with tunnels.opened(tmp_path_factory.mktemp("vpn")) as opened:
        yield opened


async def test_envoy_reaches_a_pod_of_the_shoot_whose_address_the_seed_uses_too(tunnel: Tunnel) -> None:
    assert await eventually(lambda: tunnel.fetch(POD, ENVOY) == "pod")

    assert tunnel.fetch(POD, 0) == "seed"


async def test_the_client_names_the_server_in_the_header_that_the_gateway_routes_by(tunnel: Tunnel) -> None:
    assert await eventually(lambda: f"X-Gardener-Destination: {tunnels.HEADER}" in tunnel.log(0))


async def test_the_server_is_ready_before_a_client_comes(tunnel: Tunnel) -> None:
    assert await eventually(lambda: tunnel.end("server", "readiness").wait(20) == 0)


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"IS_HA": "true"}, "this stand-in knows no highly available VPN"),
        ({"SHOOT_POD_NETWORKS": "fd00::/64"}, "this stand-in knows IPv4 only"),
        ({"SHOOT_NODE_NETWORKS": "10.0.0.0/8,11.0.0.0/16"}, "242.0.0.0/8 is too small"),
        ({}, "the environment names no network of the Shoot"),
    ],
)
def test_what_a_vpn_does_not_know_is_refused(variables: dict[str, str], reason: str) -> None:
    for end in ("vpn-server", "vpn-client"):
        program = tunnels.program(end)
        done = subprocess.run(
            [program], env=variables, capture_output=True, text=True, timeout=20, check=False
        )
        assert done.returncode == 1
        assert reason in done.stderr
