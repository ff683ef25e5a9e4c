"""The stand-ins of Gardener's VPN, with real OpenVPN between network namespaces."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from sandbox.programs import obtain
from sandbox.progress import Progress
from tests.host.gardener import tunnels
from tests.host.gardener.tunnels import ENVOY, POD, Tunnel
from tests.support.running import eventually
from tools.gardener import programs

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("openvpn"), reason="needs root and OpenVPN: apt-get install openvpn"
)


@pytest.fixture(scope="module")
def tunnel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tunnel]:
    ends = ("vpn-server", "vpn-client")
    obtain.compile_missing([programs.PROGRAMS[name] for name in ends], Progress(print))
    with tunnels.opened(tmp_path_factory.mktemp("vpn")) as opened:
        yield opened


async def test_envoy_reaches_a_pod_of_the_shoot_whose_address_the_seed_uses_too(tunnel: Tunnel) -> None:
    assert await eventually(lambda: tunnel.fetch(POD, ENVOY) == "pod")

    assert tunnel.fetch(POD, 0) == "seed"


async def test_the_client_names_the_server_in_the_header_that_the_gateway_routes_by(tunnel: Tunnel) -> None:
    assert await eventually(lambda: f"X-Gardener-Destination: {tunnels.HEADER}" in tunnel.log(0))


async def test_the_server_is_ready_before_a_client_comes(tunnel: Tunnel) -> None:
    assert await eventually(lambda: tunnel.end("server", "readiness").wait(20) == 0)
