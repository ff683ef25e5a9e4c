"""A sandbox with nodes and windowbox's processes, and in it a Shoot with a machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from click.testing import CliRunner

from commands.cli import cli
from sandbox.machines import image
from sandbox.nodes.images import ECHO
from sandbox.options import TOGETHER
from sandbox.progress import Progress
from sandbox.servers.apiserver import ApiServer, from_kubeconfig
from sandbox.shoots import creation, deletion, records, waiting
from sandbox.shoots.creation import Sandbox
from sandbox.shoots.records import Shoot
from tests.support import worldwithnodes
from tests.support.worldwithnodes import NodeWorld

NAME = "one"


@dataclass(frozen=True)
class ShootWorld:
    """A Shoot, and the sandbox that it is in."""

    sandbox: Sandbox
    shoot: Shoot

    @property
    def api(self) -> ApiServer:
        """The API server of the Shoot."""
        return from_kubeconfig(records.kubeconfig(self.sandbox.folder, self.shoot.name))

    def kubectl(self, *arguments: str) -> str:
        return worldwithnodes.kubectl(records.kubeconfig(self.sandbox.folder, self.shoot.name), *arguments)

    def said(self, *arguments: str) -> str:
        """What a command of windowbox prints about this sandbox."""
        folder = self.sandbox.folder
        asked, home = [*arguments, "--name", folder.name], {"WINDOWBOX_HOME": str(folder.parent)}
        done = CliRunner().invoke(cli, asked, env=home, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    def node(self) -> dict[str, Any]:
        """The only node of the Shoot."""
        [found] = self.api.read("/api/v1/nodes")["items"]
        return dict(found)

    def pods(self, namespace: str = "") -> str:
        """The path of the Pods of a namespace of the sandbox: that of the machines, if none is given."""
        return f"/api/v1/namespaces/{namespace or self.shoot.machines}/pods"

    def expose(self, name: str, *echo: str) -> str:
        """A Deployment of echo servers behind a load balancer, whose address is returned."""
        self.kubectl("create", "deployment", name, f"--image={ECHO}", "--", "/echo", "--tcp=8080", *echo)
        self.kubectl("expose", "deployment", name, "--type=LoadBalancer", "--port=80", "--target-port=8080")
        return self.until_address(name)

    def until_address(self, service: str, namespace: str = "default") -> str:
        """The address of a Service's load balancer."""
        path = f"/api/v1/namespaces/{namespace}/services"
        lacking = f"{service} has no address"
        found = waiting.until(self.api, path, service, lambda one: bool(_address(one)), lacking, patience=60)
        return _address(found)


def _address(service: dict[str, Any]) -> str:
    ingress = (service.get("status", {}).get("loadBalancer") or {}).get("ingress") or [{}]
    return str(ingress[0].get("ip") or ingress[0].get("hostname") or "")


@pytest.fixture(scope="package")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeWorld]:
    """Each takes the image of machines, which is dear: only a demo that is long needs two."""
    count = 2 if os.environ.get("LONG") else 1
    yield from worldwithnodes.fixture(tmp_path_factory, nodes=count, **TOGETHER)


@pytest.fixture(scope="package")
def sandbox(nodes: NodeWorld) -> Sandbox:
    if reason := image.impossible():
        pytest.skip(f"no machines: {reason}")

    def notify() -> None:
        nodes.loop.call_soon_threadsafe(nodes.sandbox.look_at_shoots)

    return Sandbox(nodes.sandbox.folder, notify)


@pytest.fixture(scope="package")
def world(sandbox: Sandbox) -> Iterator[ShootWorld]:
    """Its one machine is made of a Worker, as all are, and has joined."""
    shoot = creation.create(sandbox, NAME, 1, Progress(print), lambda what, seconds: None)
    yield ShootWorld(sandbox, shoot)
    if NAME in records.all_names(sandbox.folder):
        deletion.delete(sandbox, NAME, lambda what, seconds: None)
