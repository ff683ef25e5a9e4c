"""A sandbox with nodes and windowbox's processes, and in it a Shoot with a machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from sandbox.machines import image
from sandbox.options import TOGETHER
from sandbox.progress import Progress
from sandbox.servers.apiserver import ApiServer, from_kubeconfig
from sandbox.shoots import creation, deletion, records
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


@pytest.fixture(scope="package")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeWorld]:
    yield from worldwithnodes.fixture(tmp_path_factory, nodes=2, **TOGETHER)


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
