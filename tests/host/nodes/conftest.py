"""Nodes for the tests of this package: share them, and leave them as they were."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import worldwithnodes
from tests.support.worldwithnodes import NodeWorld


@pytest.fixture(scope="package")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeWorld]:
    """A control plane and three nodes."""
    yield from worldwithnodes.fixture(tmp_path_factory, nodes=3)
