"""The chart, installed on real nodes from an image of this checkout."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox.nodes import images
from sandbox.nodes.images import Image
from sandbox.shoots import creation
from tests.support import helm, servers, worldwithnodes
from tests.support.worldwithnodes import NodeWorld
from tools.chart.generated import CHART
from tools.release import ownimage

IMAGE = {"repository": "windowbox.local/windowbox", "tag": "1", "pullPolicy": "Never"}
NAME_SERVER = "windowbox-bind"


@dataclass(frozen=True)
class Release:
    """A release called `windowbox`, and the sandbox that it is in."""

    node: NodeWorld

    @property
    def to(self) -> tuple[str, str]:
        """Where helm finds it."""
        return f"--kubeconfig={self.node.kubeconfig}", f"--namespace={helm.NAMESPACE}"

    def install(self, folder: Path, preset: Path, values: dict[str, Any], chart: Path = CHART) -> None:
        """Install it with the values of a preset and these, and wait until all of it is ready."""
        file = folder / "values.yaml"
        file.write_text(yaml.safe_dump(values))
        self._helm("install", str(chart), f"--values={preset}", f"--values={file}", "--skip-crds")

    def upgrade(self, *arguments: str) -> None:
        """As docs/upgrade.md says, and wait until all of it is ready."""
        self._helm("upgrade", str(CHART), "--reset-then-reuse-values", *arguments)

    def _helm(self, verb: str, chart: str, *arguments: str) -> None:
        waiting = ("--wait", "--timeout=15m")
        done = helm.helm(verb, "windowbox", chart, *self.to, *arguments, *waiting, patience=960)
        assert done.returncode == 0, done.stderr + self.pods()

    def test(self) -> str:
        """The output of `helm test`, which creates a record and resolves it."""
        done = helm.helm("test", "windowbox", *self.to, "--logs", "--timeout=3m", patience=240)
        assert done.returncode == 0, done.stderr + self.pods()
        return done.stdout

    def uninstall(self) -> None:
        done = helm.helm("uninstall", "windowbox", *self.to, "--wait", "--timeout=3m", patience=240)
        assert done.returncode == 0, done.stderr

    def run(self, *command: str) -> str:
        """The output of a command in the operator's Pod."""
        pod = (f"--namespace={helm.NAMESPACE}", "deploy/windowbox-operator")
        return self.node.kubectl("exec", *pod, "--", "windowbox", *command)

    def metrics(self, role: str) -> str:
        """The metrics of a role's Pod."""
        selected = f"--selector=app.kubernetes.io/component={role}"
        names = self.node.kubectl("get", "pods", f"--namespace={helm.NAMESPACE}", selected, "--output=name")
        pod = names.split()[0].removeprefix("pod/")
        path = f"/api/v1/namespaces/{helm.NAMESPACE}/pods/{pod}:9090/proxy/metrics"
        return self.node.kubectl("get", "--raw", path)

    def streams(self, query: str) -> list[dict[str, Any]]:
        """The streams of the first NATS server."""
        path = f"/api/v1/namespaces/{helm.NAMESPACE}/pods/windowbox-nats-0:8222/proxy/jsz?{query}"
        answer = json.loads(self.node.kubectl("get", "--raw", path))
        return list(answer["account_details"][0]["stream_detail"])

    def resolved(self, names: Iterable[str]) -> dict[str, str]:
        """The answers of the name server in Pods for these names."""
        questions = [part for name in sorted(names) for part in (name, "A")]
        done = subprocess.run(
            ["dig", f"@{service_address(self.node, 53)}", "+noall", "+answer", *questions],
            capture_output=True, text=True, timeout=300, check=True,
        )  # fmt: skip
        rows = [line.split() for line in done.stdout.splitlines() if line and not line.startswith(";")]
        return {row[0].rstrip("."): row[4] for row in rows}

    def restarts(self) -> dict[str, int]:
        """The number of restarts of each container that was restarted."""
        found = json.loads(self.node.kubectl("get", "pods", f"--namespace={helm.NAMESPACE}", "--output=json"))
        statuses = {one["metadata"]["name"]: one["status"]["containerStatuses"][0] for one in found["items"]}
        return {name: one["restartCount"] for name, one in statuses.items() if one["restartCount"]}

    def pods(self) -> str:
        """The Pods, their last events and log lines."""
        namespace = f"--namespace={helm.NAMESPACE}"
        shown = self.node.kubectl("get", "pods", namespace, "--output=wide")
        events = self.node.kubectl("get", "events", namespace, "--sort-by=.lastTimestamp")
        names = [line.split()[0] for line in shown.splitlines()[1:]]
        said = "".join(f"\n{name}:\n{self._log(name)}" for name in names)
        return f"\n{shown}\n{events[-2000:]}\n{said}"

    def _log(self, pod: str) -> str:
        try:
            return self.node.kubectl("logs", pod, f"--namespace={helm.NAMESPACE}", "--tail=12")
        except AssertionError as error:  # it has not started
            return str(error)


def fixture(
    factory: pytest.TempPathFactory,
    preset: str,
    values: Callable[[NodeWorld], dict[str, Any]],
    *,
    nodes: int = 1,
    edge: bool = False,
) -> Iterator[Release]:
    """A release that helm installs on its own nodes, and uninstalls in the end."""
    servers.need("helm", "named", "dig")
    for world in worldwithnodes.fixture(factory, nodes=nodes):
        folder = factory.mktemp("release")
        bring_image(world, folder / "own.tar", edge=edge)
        made = Release(world)
        made.install(folder, CHART / f"values-{preset}.yaml", values(world))
        yield made
        made.uninstall()


def bring_image(world: NodeWorld, archive: Path, image: Image | None = None, *, edge: bool = False) -> None:
    """Import an image, by default that of windowbox, into the nodes' containerds."""
    image = image or ownimage.image(edge=edge)
    images.write(image, archive)
    sandbox = creation.detached(world.sandbox.folder, world.sandbox.state)
    creation.import_image(archive, image.name, sandbox.sockets())
    archive.unlink()


def one_of_each(world: NodeWorld) -> dict[str, Any]:
    """Values for one Pod of each role. There is no cluster DNS: names have addresses of their own."""
    bus, name_server = service_address(world, 4222), service_address(world, 53)
    return {
        "rbac": {"name": "installed"},  # the sandbox itself has roles called windowbox
        "operator": {"enabled": True},
        "image": IMAGE,
        "nats": {"image": IMAGE, "clusterIP": bus},
        "bind": {"image": IMAGE, "service": {"clusterIP": name_server}},
        "edge": {"enabled": True, "hostPath": str(world.sandbox.folder / "edge")},
        "admit": {"enabled": True},
        "settings": {
            "loadbalancer": {"ranges": [{"prefixes": [balancers(world)]}]},
            "feature_gates": {"IngressRecords": False},
        },
        "hostAliases": [
            {"ip": bus, "hostnames": ["windowbox-nats-0.windowbox-nats-servers"]},
            {"ip": name_server, "hostnames": [NAME_SERVER]},
        ],
    }


def three_servers(world: NodeWorld) -> dict[str, Any]:
    """Values beside those for availability. Each NATS server has a Service with its own address."""
    name_server = service_address(world, 53)
    servers = {f"windowbox-nats-{number}": service_address(world, 4222 + number) for number in range(3)}
    return {
        "rbac": {"name": "installed"},
        "image": IMAGE,
        "nats": {"image": IMAGE, "storage": {"ephemeral": True}},
        "bind": {
            "enabled": True,
            "image": IMAGE,
            "service": {"clusterIP": name_server},
            "storage": {"ephemeral": True},
        },
        "settings": {"grant": {"namespaces": ["*"]}},
        "hostAliases": [
            {"ip": name_server, "hostnames": [NAME_SERVER]},
            *(
                {"ip": address, "hostnames": [f"{name}.windowbox-nats-servers"]}
                for name, address in servers.items()
            ),
        ],
        "extraObjects": [_service_of(name, address) for name, address in servers.items()],
    }


def _service_of(pod: str, address: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": pod, "namespace": helm.NAMESPACE},
        "spec": {
            "clusterIP": address,
            "publishNotReadyAddresses": True,
            "selector": {"statefulset.kubernetes.io/pod-name": pod},
            "ports": [{"name": "client", "port": 4222}, {"name": "route", "port": 6222}],
        },
    }


def service_address(world: NodeWorld, number: int) -> str:
    """An address for a Service, so far from the first one."""
    first = world.api.read("/api/v1/namespaces/default/services/kubernetes")["spec"]["clusterIP"]
    return str(ip_address(first) + number)


def balancers(world: NodeWorld) -> str:
    """A prefix for load balancers: of the last Pods' addresses of the node, which this host routes to it.

    Not the very last: the node knows one of them as the broadcast address.
    """
    network = world.nodes[0].plan.pods_v4
    return str(list(network.subnets(new_prefix=29))[-2])
