"""Echo servers on the sandbox with three nodes, for all tests of this package: leave all as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.host.conftest import ThreeNodes
from tests.host.traffic.world import World


@pytest.fixture(scope="package")
def traffic(three_nodes: ThreeNodes) -> Iterator[World]:
    """An echo server on each of three nodes, and our watcher, worker and patcher."""
    world = three_nodes.world()
    world.nodes.deploy_echo("echo", tcp=(8080, 8081), udp=(8080,), service={"type": "ClusterIP"})
    yield world
    three_nodes.end()
