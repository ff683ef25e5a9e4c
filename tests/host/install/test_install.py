"""`helm install` on a real node: everything in Pods, and a record that resolves."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest
import yaml

from tests.support import helm, servers, worldwithnodes
from tests.support.worldwithnodes import NodeWorld
from windowbox.chart.generated import CHART
from windowbox.sandbox.nodes import images, ownimage
from windowbox.sandbox.shoots import creation, importing

IMAGE = {"repository": "windowbox.local/windowbox", "tag": "1", "pullPolicy": "Never"}
BUS, NAME_SERVER = "windowbox-nats-0.windowbox-nats-servers", "windowbox-bind"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeWorld]:
    """A node that has the image."""
    if reason := servers.missing("helm", "named"):
        pytest.skip(reason)
    for world in worldwithnodes.fixture(tmp_path_factory, nodes=1):
        archive = images.write(ownimage.image(), tmp_path_factory.mktemp("image") / "own.tar")
        sandbox = creation.detached(world.sandbox.folder, world.sandbox.state)
        importing.bring(archive, ownimage.NAME, sandbox.sockets())
        archive.unlink()
        yield world


@pytest.fixture(scope="module")
def values(node: NodeWorld, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image is the node's own; and there is no cluster DNS."""
    first = ip_address(node.api.read("/api/v1/namespaces/default/services/kubernetes")["spec"]["clusterIP"])
    bus, name_server = str(first + 4222), str(first + 53)
    path = tmp_path_factory.mktemp("values") / "values.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "rbac": {"name": "installed"},  # the sandbox itself has roles called windowbox
                "operator": {"enabled": True},
                "image": IMAGE,
                "nats": {"image": IMAGE, "clusterIP": bus},
                "bind": {"image": IMAGE, "service": {"clusterIP": name_server}},
                "hostAliases": [
                    {"ip": bus, "hostnames": [BUS]},
                    {"ip": name_server, "hostnames": [NAME_SERVER]},
                ],
            }
        )
    )
    return path


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_helm_installs_what_serves_records(node: NodeWorld, values: Path) -> None:
    to = (f"--kubeconfig={node.kubeconfig}", f"--namespace={helm.NAMESPACE}")
    laptop = f"--values={CHART / 'values-laptop.yaml'}"
    installed = helm.helm(
        "install", "windowbox", str(CHART), *to, laptop, f"--values={values}", "--skip-crds",
        "--wait", "--timeout=5m", patience=400,
    )  # fmt: skip
    assert installed.returncode == 0, installed.stderr + _pods(node)
    tested = helm.helm("test", "windowbox", *to, "--logs", "--timeout=3m", patience=240)
    assert tested.returncode == 0, tested.stderr + _pods(node)
    assert _restarts(node) == {}
    made = re.search(r"DNSRecord (\S+) is made", tested.stdout)
    assert made, tested.stdout
    assert "Succeeded" in _from_the_operators_pod(node, "trace", "dnsrecord", made[1])
    removed = helm.helm("uninstall", "windowbox", *to, "--wait", "--timeout=3m", patience=240)
    assert removed.returncode == 0, removed.stderr


def _from_the_operators_pod(node: NodeWorld, *command: str) -> str:
    pod = (f"--namespace={helm.NAMESPACE}", "deploy/windowbox-operator")
    return node.kubectl("exec", *pod, "--", "windowbox", *command)


def _restarts(node: NodeWorld) -> dict[str, int]:
    """How often containers were started again, where they were."""
    found = json.loads(node.kubectl("get", "pods", f"--namespace={helm.NAMESPACE}", "--output=json"))
    statuses = {one["metadata"]["name"]: one["status"]["containerStatuses"][0] for one in found["items"]}
    return {name: one["restartCount"] for name, one in statuses.items() if one["restartCount"]}


def _pods(node: NodeWorld) -> str:
    """What the Pods are doing, and what they said last."""
    namespace = f"--namespace={helm.NAMESPACE}"
    shown = node.kubectl("get", "pods", namespace, "--output=wide")
    events = node.kubectl("get", "events", namespace, "--sort-by=.lastTimestamp")
    names = [line.split()[0] for line in shown.splitlines()[1:]]
    said = "".join(f"\n{name}:\n{node.kubectl('logs', name, namespace, '--tail=12')}" for name in names)
    return f"\n{shown}\n{events[-2000:]}\n{said}"
