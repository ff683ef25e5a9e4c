"""Gardener's ingress gateway: real Istio with windowbox's Envoy, and a VPN through it."""

from __future__ import annotations

import base64
import shutil
import subprocess
from pathlib import Path

import pytest

from sandbox.programs import binaries
from tests.host.gardener import ingress
from tests.host.gardener.ingress import HOST, INGRESS, NAMESPACE, kubectl
from tests.support.running import eventually
from tools.gardener import programs
from tools.gardener.base import Base

pytestmark = [
    pytest.mark.long,  # needs a built Istio
    pytest.mark.timeout(900),
]

_NEEDED = ("pilot-discovery", "pilot-agent", "vpn-server", "vpn-client")


@pytest.fixture(scope="module")
def address(ready: Base) -> str:
    missing = [one for one in _NEEDED if not binaries.cached(programs.PROGRAMS[one]).exists()]
    if missing or not shutil.which("openvpn"):
        pytest.skip(f"not built, or not installed: {missing or 'openvpn'}")
    return ingress.install(ready)


async def test_the_gateway_routes_by_server_name_and_by_header(
    ready: Base, address: str, tmp_path: Path
) -> None:
    authority = tmp_path / "ca.crt"
    authority.write_bytes(_secret(ready, "server", "ca.crt"))
    url = [f"https://{HOST}/", "--cacert", str(authority)]
    by_name = ["--connect-to", f"::{address}:443", *url]
    assert await eventually(lambda: _curl(*by_name) == "the Shoot's API server")

    # As the Envoy on each node of a Shoot does, for Pods that ask the API server.
    header = f"X-Gardener-Destination: outbound|443||kube-apiserver.{NAMESPACE}.svc.cluster.local"
    proxy = ["--proxy", f"http://{address}:8443", "--proxytunnel", "--proxy-header", header]
    assert _curl(*proxy, *url) == "the Shoot's API server"


def test_istiod_refuses_invalid_objects(ready: Base, address: str) -> None:
    gateway = '{"apiVersion":"networking.istio.io/v1","kind":"Gateway","metadata":{"name":"x"},"spec":{}}'
    with pytest.raises(AssertionError, match="gateway must have at least one server"):
        kubectl(ready, "create", f"--namespace={INGRESS}", "-f", "-", text=gateway)


async def test_envoy_reaches_pods_services_and_nodes_through_the_vpn(
    ready: Base, address: str, tmp_path: Path
) -> None:
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).write_bytes(_secret(ready, "client", name))
    server, pod = (_pod(ready, label) for label in ("app=vpn-seed-server", "role=apiserver"))
    service = kubectl(
        ready, "get", "service/kube-apiserver", f"--namespace={NAMESPACE}", "-o=jsonpath={.spec.clusterIP}"
    )
    key = ["--proxy-cert", str(tmp_path / "tls.crt"), "--proxy-key", str(tmp_path / "tls.key")]
    through = ["--proxy", f"https://{server}:9443", "--proxy-insecure", *key, "--insecure"]
    assert await eventually(lambda: _curl(*through, f"https://{pod}:8443") == "the Shoot's API server")
    assert _curl(*through, f"https://{service}") == "the Shoot's API server"
    assert _curl(*through, f"https://{ready.plan.nodes[0].v4}:10250/healthz") == "Unauthorized"
    # The tunnel, not the seed's network, which has these addresses, too.
    kubectl(ready, "scale", f"--namespace={NAMESPACE}", "deploy/vpn-shoot", "--replicas=0")
    assert await eventually(lambda: _curl(*through, f"https://{pod}:8443") == "")


def _curl(*arguments: str) -> str:
    done = subprocess.run(
        ["curl", "-sS", "--max-time", "3", *arguments],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    return done.stdout


def _pod(ready: Base, label: str) -> str:
    path = "-o=jsonpath={.items[0].status.podIP}"
    return kubectl(ready, "get", "pods", f"--namespace={NAMESPACE}", f"--selector={label}", path)


def _secret(ready: Base, name: str, key: str) -> bytes:
    path = f"-o=jsonpath={{.data.{key.replace('.', chr(92) + '.')}}}"
    return base64.b64decode(kubectl(ready, "get", f"secret/{name}", f"--namespace={NAMESPACE}", path))
