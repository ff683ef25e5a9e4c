"""A node for all tests of this package, and windowbox in Pods on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import release
from tests.support.release import Release


@pytest.fixture(scope="package")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """Everything in Pods of one node, as helm has installed it; helm takes it away in the end."""
    yield from release.fixture(tmp_path_factory, "laptop", release.one_of_each, edge=True)
