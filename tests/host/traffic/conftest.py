"""One sandbox with three real nodes for all tests of this package: leave it as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.host.conftest import ThreeNodes
from tests.host.traffic.world import World


@pytest.fixture(scope="package")
def traffic(three_nodes: ThreeNodes) -> Iterator[World]:
    """Three nodes with an echo server on each, and our watcher, worker and patcher."""
    yield three_nodes.world()
    three_nodes.end()
