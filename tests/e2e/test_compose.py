"""docker-compose.yaml for real: a Docker engine of the test's own, with images made on the spot."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from bus import permissions
from commands.cli import COMMANDS
from sandbox.programs import binaries
from sandbox.servers.apiserver import ApiServer
from tests.e2e import baseimage
from tests.e2e import engine as engines
from tests.e2e.engine import Engine
from tests.support import servers
from tests.support.cases import cases
from tests.support.proxy import Proxy
from tests.support.running import eventually
from tests.support.servers import ControlPlane
from windowbox.models.refs import DNSRECORDS, SERVICES
from windowbox.settings import settings

ROOT = Path(__file__).parents[2]
BASE = "windowbox-test-base"
PATIENCE = 120.0
"""Containers start slowly where many other things do."""
ZONE = "local.gardener.cloud"
ADDRESS = "198.18.7.1"
RANGES = f'[{{"prefixes": ["{ADDRESS}/32"]}}]'
SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
}


@dataclass(frozen=True)
class Deployment:
    engine: Engine
    plane: ControlPlane
    env: dict[str, str]

    def compose(self, *arguments: str) -> str:
        files = ("--project-name", "windowbox", "--file", str(ROOT / "docker-compose.yaml"))
        return self.engine.compose(*files, *arguments, env=self.env)

    def containers(self, service: str) -> list[str]:
        label = f"label=com.docker.compose.service={service}"
        return self.engine.docker("ps", "--quiet", "--filter", label).split()

    def healthy(self) -> bool:
        """Whether all containers that run say so of themselves."""
        ids = self.engine.docker("ps", "--quiet").split()
        reported = json.loads(self.engine.docker("inspect", *ids))
        return all(container["State"]["Health"]["Status"] == "healthy" for container in reported)

    def dig(self, name: str) -> str:
        (bind,) = self.containers("bind")
        return self.engine.docker("exec", bind, "dig", "+short", "@127.0.0.1", name).strip()


@pytest.fixture(scope="module")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    lacking = engines.missing() or baseimage.missing() or servers.missing("nats-server", "named", "dig")
    if lacking:
        pytest.skip(lacking)
    folder = tmp_path_factory.mktemp("docker")
    try:
        with engines.engine(folder) as engine:
            _import_base(engine, folder)
            yield engine
    except engines.Unable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster of its own: nobody else may serve its DNSRecords."""
    servers.need("etcd", "kube-apiserver")
    with servers.control_plane(tmp_path_factory.mktemp("cluster")) as plane:
        yield plane


@pytest.fixture
async def deployment(docker: Engine, cluster: ControlPlane, tmp_path: Path) -> AsyncIterator[Deployment]:
    env = {
        **_secrets(tmp_path / "tls"),
        "KUBECONFIG": str(_kubeconfig(cluster, tmp_path / "kubeconfig")),
        "PYTHON_IMAGE": BASE,
        "NATS_IMAGE": BASE,
        "BIND_IMAGE": BASE,
        "COMPOSE_PROFILES": "loadbalancers",
        "LOADBALANCER_RANGES": RANGES,
    }
    made = Deployment(docker, cluster, env)
    async with _reachable(cluster.url, docker):
        try:
            yield made
        finally:
            # Shown if the test fails.
            print(await asyncio.to_thread(made.compose, "logs", "--no-color", "--tail=40"))
            await asyncio.to_thread(made.compose, "down", "--volumes", "--timeout", "15")


@pytest.mark.long  # its settings are shown below, several workers by chaos/test_machinesets.py
@pytest.mark.timeout(420)
async def test_compose_serves_a_cluster_with_several_workers(deployment: Deployment) -> None:
    await asyncio.to_thread(deployment.compose, "up", "--detach", "--scale", "work=2")
    api = deployment.plane.api
    api.create("/api/v1/namespaces", {"metadata": {"name": "shop"}})
    for number in range(20):
        api.create(DNSRECORDS.path("shop"), _record(number))
    api.create(SERVICES.path("shop"), SERVICE)

    await eventually(lambda: asyncio.to_thread(_all_succeeded, api), PATIENCE)
    # Shown once Envoy, in the network of the engine's host, has the listener.
    await eventually(lambda: asyncio.to_thread(_addresses, api, ADDRESS), PATIENCE)

    assert deployment.dig(f"web-7.{ZONE}") == "198.51.100.7"
    assert len(deployment.containers("work")) == 2
    await eventually(lambda: asyncio.to_thread(deployment.healthy), PATIENCE)


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What Compose makes of the file, which takes no engine."""
    if not shutil.which(engines.compose_command()[0]):
        pytest.skip(f"{engines.compose_command()[0]} is not installed: run `make setup`")
    env = {
        **os.environ, **_secrets(tmp_path_factory.mktemp("secrets") / "tls"),
        "KUBECONFIG": "/kubeconfig", "COMPOSE_PROFILES": "loadbalancers", "LOADBALANCER_RANGES": RANGES,
    }  # fmt: skip
    command = [*engines.compose_command(), f"--file={ROOT / 'docker-compose.yaml'}", "config"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = yaml.safe_load(done.stdout)["services"]
    return found


@cases(
    "name user",
    ("setup", "setup", "watcher"),
    ("watch", "watch", "watcher"),
    ("work", "work", "worker"),
    ("patch", "patch", "patcher"),
    ("edge", "edge", "edge"),
)
def test_a_process_understands_its_command_and_settings(
    services: dict[str, Any], monkeypatch: pytest.MonkeyPatch, name: str, user: str
) -> None:
    [command], given = services[name]["command"], services[name]["environment"]
    assert command in {known for section in COMMANDS.values() for known in section}
    for variable in [one for one in os.environ if one.startswith("WINDOWBOX_")]:
        monkeypatch.delenv(variable)
    for variable, value in given.items():
        monkeypatch.setenv(variable, value)
    found = settings.load(None)
    for variable in given:
        section, _, field = variable.removeprefix("WINDOWBOX_").lower().partition("__")
        assert not field or field in type(getattr(found, section)).model_fields, variable
    assert (found.nats.user, str(found.nats.ca)) == (user, "/etc/windowbox/nats/ca.crt")
    if name == "work":
        assert [(zone.name, zone.servers) for zone in found.dns.zones] == [(ZONE, ["bind:53"])]
        [ranges] = found.loadbalancer.ranges
        assert [str(prefix) for prefix in ranges.prefixes] == [f"{ADDRESS}/32"]


def test_compose_has_the_programs_bus_users() -> None:
    assert (ROOT / "deploy/nats/roles.conf").read_text() == permissions.configuration()
    clustered = permissions.configuration(clustered=True)
    assert (ROOT / "deploy/nats/roles-clustered.conf").read_text() == clustered


def test_the_chart_has_a_user_for_one_pod() -> None:
    assert (ROOT / "deploy/nats/roles-run.conf").read_text() == permissions.configuration(runner=True)


def test_scalable_services_have_no_fixed_name_or_port() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())["services"]

    for name in ("watch", "work", "patch"):
        assert not {"container_name", "ports", "hostname"} & services[name].keys()


def _import_base(engine: Engine, folder: Path) -> None:
    wheels, tar = folder / "wheels", folder / "base.tar"
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", f"--dest={wheels}"]
    command += ["-c", str(ROOT / "constraints.txt"), "setuptools"]
    fetched = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if fetched.returncode:
        raise engines.Unable(f"setuptools, which the image is built with, cannot be had: {fetched.stderr}")
    baseimage.write(tar, wheels)
    path = f"{baseimage.python_folder()}:/usr/local/bin:/usr/bin:/bin:/usr/sbin"
    nats = Path(binaries.find("nats-server")).parent
    variables = (f"PATH={path}:{nats}", f"PYTHONPATH={baseimage.PACKAGES}")
    engine.docker("import", *(f"--change=ENV {one}" for one in variables), str(tar), BASE)
    tar.unlink()


def _secrets(folder: Path) -> dict[str, str]:
    """What deploy/new-secrets.sh makes; the certificates in `folder`."""
    made = {"NATS_TLS": str(folder)}
    printed = subprocess.run(
        ["sh", str(ROOT / "deploy/new-secrets.sh")],
        env=os.environ | made, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    return made | dict(line.split("=", 1) for line in printed.splitlines())


def _kubeconfig(cluster: ControlPlane, path: Path) -> Path:
    """The administrator's kubeconfig as it works inside a container: without paths, and by another name."""
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    (server,) = (entry["cluster"] for entry in config["clusters"])
    (user,) = (entry["user"] for entry in config["users"])
    server["server"] = server["server"].replace("127.0.0.1", "kubernetes")
    files = ((server, "certificate-authority"), (user, "client-certificate"), (user, "client-key"))
    for section, key in files:
        section[f"{key}-data"] = base64.b64encode(Path(section.pop(key)).read_bytes()).decode()
    path.write_text(yaml.safe_dump(config))
    path.chmod(0o644)
    return path


@contextlib.asynccontextmanager
async def _reachable(url: str, engine: Engine) -> AsyncIterator[None]:
    """Let the API server, which listens on this machine's loopback, be reached from the engine's network."""
    port = int(url.rpartition(":")[2])
    async with await asyncio.start_server(Proxy(port).serve, sock=engine.listener(port)):
        yield


def _record(number: int) -> dict[str, object]:
    return {
        "apiVersion": "extensions.gardener.cloud/v1alpha1",
        "kind": "DNSRecord",
        "metadata": {"name": f"web-{number}", "namespace": "shop"},
        "spec": {
            "type": "local",
            "secretRef": {"name": "unused", "namespace": "shop"},
            "name": f"web-{number}.{ZONE}",
            "recordType": "A",
            "values": [f"198.51.100.{number}"],
        },
    }


def _addresses(api: ApiServer, wanted: str) -> bool:
    status = json.load(api.request("GET", SERVICES.path("shop", "web")))["status"]
    return [entry["ip"] for entry in status["loadBalancer"].get("ingress", ())] == [wanted]


def _all_succeeded(api: ApiServer) -> bool:
    items = json.load(api.request("GET", DNSRECORDS.path("shop")))["items"]
    states = [item.get("status", {}).get("lastOperation", {}).get("state") for item in items]
    return states == ["Succeeded"] * 20
