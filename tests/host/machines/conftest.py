"""A sandbox with nodes and windowbox's processes, and in it the control plane of a Shoot without machines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support import worldwithnodes
from tests.support.worldwithnodes import NodeWorld
from windowbox.sandbox.apiserver import ApiServer, from_kubeconfig
from windowbox.sandbox.machines import image
from windowbox.sandbox.progress import Progress
from windowbox.sandbox.shoots import creation, deletion, records
from windowbox.sandbox.shoots.creation import Sandbox
from windowbox.sandbox.shoots.objects import Images
from windowbox.sandbox.shoots.records import Shoot


@dataclass(frozen=True)
class Prepared:
    """A Shoot, and the images of its machines."""

    sandbox: Sandbox
    shoot: Shoot
    images: Images

    @property
    def api(self) -> ApiServer:
        return from_kubeconfig(records.kubeconfig(self.sandbox.folder, self.shoot.name))

    def kubectl(self, *arguments: str) -> str:
        return worldwithnodes.kubectl(records.kubeconfig(self.sandbox.folder, self.shoot.name), *arguments)


@pytest.fixture(scope="package")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeWorld]:
    yield from worldwithnodes.fixture(tmp_path_factory, nodes=2, watchers=1, workers=1, patchers=1)


@pytest.fixture(scope="package")
def sandbox(nodes: NodeWorld) -> Sandbox:
    if reason := image.impossible():
        pytest.skip(f"no machines: {reason}")
    look = nodes.sandbox.look_at_shoots
    return Sandbox(nodes.sandbox.folder, lambda: void(nodes.loop.call_soon_threadsafe(look)))


@pytest.fixture(scope="package")
def prepared(sandbox: Sandbox) -> Iterator[Prepared]:
    shoot, images = creation.prepare(sandbox, "hand", Progress(print), lambda what: None)
    yield Prepared(sandbox, shoot, images)
    deletion.delete(sandbox, "hand", lambda what, seconds: None)


def void(ignored: object) -> None:
    """For callbacks that answer nothing."""
