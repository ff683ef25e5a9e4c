"""The stand-in of ext-authz-server, asked by an Envoy as ingress gateways ask it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sandbox.nodes import iproute
from sandbox.programs import binaries
from tests.support import envoyprogram
from tests.support.running import eventually
from tools.gardener import programs
from windowbox.secretsmanager import generation
from windowbox.secretsmanager.configs import Authority, BasicAuth, Certificate, Usage

_SERVER = programs.PROGRAMS["ext-authz-server"]

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a network namespace"),
    pytest.mark.skipif(
        not binaries.cached(_SERVER).exists(),
        reason="ext-authz-server is not built: run `windowbox gardener build`",
    ),
]


class Gateway:
    """An Envoy that asks the server about each request, in a network namespace."""

    def __init__(self, namespace: str, password: str) -> None:
        self._inside = ["ip", "netns", "exec", namespace]
        self.password = password

    def start(self, command: list[str], log: Path) -> subprocess.Popen[bytes]:
        with log.open("wb") as output:
            return subprocess.Popen(
                [*self._inside, "setpriv", "--pdeathsig", "KILL", *command],
                stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def ask(self, host: str, *arguments: str) -> str:
        """The status of an answer, and its challenge."""
        curl = ["curl", "-sS", "--max-time", "5", "-o", "/dev/null", "-H", f"Host: {host}", *arguments]
        done = subprocess.run(
            [*self._inside, *curl, "-w", "%{http_code} %header{www-authenticate}", "http://127.0.0.1:8080/"],
            capture_output=True, text=True, timeout=20, check=False,
        )  # fmt: skip
        return done.stdout.strip()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder, namespace = tmp_path_factory.mktemp("basic-auth"), f"wbauth{os.getpid() % 10000}"
    with ExitStack() as ends:
        iproute.run("ip", "netns", "add", namespace)
        ends.callback(iproute.run, "ip", "netns", "del", namespace)
        iproute.run("ip", "-n", namespace, "link", "set", "lo", "up")
        made = Gateway(namespace, _write_root(folder / "root"))
        (folder / "envoy.json").write_text(json.dumps(_ENVOY))
        envoy = envoyprogram.envoy(folder)
        for command in (
            ["chroot", str(folder / "root"), "/ext-authz-server"],
            [str(envoy), "-c", str(folder / "envoy.json"), "--concurrency", "1", "--base-id-path",
             str(folder / "base-id"), "--use-dynamic-base-id"],
        ):  # fmt: skip
            process = made.start(command, folder / f"{Path(command[-1]).name}.log")
            ends.callback(process.wait, 20)
            ends.callback(process.send_signal, signal.SIGKILL)
        yield made


async def test_who_knows_the_password_passes(gateway: Gateway) -> None:
    known = ("-u", f"admin:{gateway.password}")

    assert await eventually(lambda: gateway.ask("pl-one.ingress.local", *known).startswith("200"))


@pytest.mark.parametrize(
    ("host", "arguments"),
    [
        ("pl-one.ingress.local", ()),
        ("pl-one.ingress.local", ("-u", "admin:wrong")),
        ("pl-one.ingress.local", ("-u", "other:{password}")),
        ("pl-one.ingress.local", ("-H", "Authorization: Basic ***")),
        ("pl-one.ingress.local", ("-H", "Authorization: Bearer {password}")),
        ("pl-two.ingress.local", ("-u", "admin:{password}")),
        ("..", ("-u", "admin:{password}")),
    ],
    ids=["nobody", "password", "user", "no-base64", "bearer", "other-host", "no-label"],
)
async def test_all_others_are_asked_for_a_password(
    gateway: Gateway, host: str, arguments: tuple[str, ...]
) -> None:
    given = [argument.format(password=gateway.password) for argument in arguments]

    assert await eventually(lambda: gateway.ask(host, *given) == '401 Basic realm="Authentication Required"')


def _write_root(root: Path) -> str:
    """Write the file system of a container with the password of one host, and return the password."""
    now, authority = datetime.now(UTC), Authority("ca")
    signer = generation.authority(authority, "ca", now)
    tls = generation.certificate(Certificate("server", "server", "ca", Usage.SERVER), signer, now)
    user = generation.basic_auth(BasicAuth("plutono", "admin"))
    files = {"tls/tls.crt": tls["tls.crt"], "tls/tls.key": tls["tls.key"], "secrets/pl-one": user["auth"]}
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    shutil.copy(binaries.cached(_SERVER), root)
    return user["password"].decode()


def _address(port: int) -> dict[str, object]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


_TYPES = "type.googleapis.com/envoy.extensions"
_FILTERS = [
    {
        "name": "envoy.filters.http.ext_authz",
        "typed_config": {
            "@type": f"{_TYPES}.filters.http.ext_authz.v3.ExtAuthz",
            "transport_api_version": "V3",
            "grpc_service": {"timeout": "2s", "envoy_grpc": {"cluster_name": "auth"}},
        },
    },
    {
        "name": "envoy.filters.http.router",
        "typed_config": {"@type": f"{_TYPES}.filters.http.router.v3.Router"},
    },
]
_ROUTE = {"match": {"prefix": "/"}, "direct_response": {"status": 200}}
_MANAGER = {
    "@type": f"{_TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager",
    "stat_prefix": "gateway",
    "http_filters": _FILTERS,
    "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [_ROUTE]}]},
}
_ENVOY = {
    "static_resources": {
        "listeners": [
            {"address": _address(8080), "filter_chains": [{"filters": [{
                "name": "envoy.filters.network.http_connection_manager", "typed_config": _MANAGER,
            }]}]},
        ],
        "clusters": [
            {
                "name": "auth",
                "load_assignment": {"cluster_name": "auth", "endpoints": [
                    {"lb_endpoints": [{"endpoint": {"address": _address(10000)}}]},
                ]},
                "transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": {
                    "@type": f"{_TYPES}.transport_sockets.tls.v3.UpstreamTlsContext",
                }},
                "typed_extension_protocol_options": {
                    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                        "@type": f"{_TYPES}.upstreams.http.v3.HttpProtocolOptions",
                        "explicit_http_config": {"http2_protocol_options": {}},
                    },
                },
            }
        ],
    }
}  # fmt: skip
