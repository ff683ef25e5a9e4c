"""A sandbox that packages of tests share which follow each other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.host.traffic import world
from tests.host.traffic.world import World
from tests.support import worldwithnodes


@dataclass
class ThreeNodes:
    """The sandbox of `nodes` and `traffic`: it starts with the first test that needs it."""

    folder: Path
    _world: World | None = None
    _running: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def world(self) -> World:
        if self._world is None:
            worldwithnodes.need()
            self._world = self._running.enter_context(world.opened(self.folder / "sandbox"))
        return self._world

    def end(self) -> None:
        """End it already: the tests that follow do not need it."""
        self._running.close()
        self._world = None


@pytest.fixture(scope="session")
def three_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeNodes]:
    made = ThreeNodes(tmp_path_factory.mktemp("nodes"))
    yield made
    made.end()
