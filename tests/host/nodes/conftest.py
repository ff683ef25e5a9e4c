"""Nodes for the tests of this package: share them, and leave them as they were."""

from __future__ import annotations

import pytest

from tests.host.conftest import ThreeNodes
from tests.support.worldwithnodes import NodeWorld


@pytest.fixture(scope="package")
def nodes(three_nodes: ThreeNodes) -> NodeWorld:
    """A control plane, three nodes, and on each of them an echo server, with the label `app: echo`."""
    return three_nodes.world().nodes
