"""One sandbox with three real nodes for all tests of this package: leave it as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.host.traffic import world
from tests.host.traffic.world import World


@pytest.fixture(scope="package")
def traffic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Three nodes with an echo server on each, and our watcher, worker and patcher."""
    yield from world.fixture(tmp_path_factory)
