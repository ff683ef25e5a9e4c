"""The cluster that is served, and another one that its machines may run in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import servers
from tests.support.servers import ControlPlane


@pytest.fixture(scope="session")
def plane(control_plane: ControlPlane) -> ControlPlane:
    """The API server that all tests share, where windowbox serves it: use a Shoot of your own."""
    if reason := servers.missing("nats-server"):
        pytest.skip(reason)
    return control_plane


@pytest.fixture(scope="package")
def other(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Another cluster, for machines."""
    with servers.control_plane(tmp_path_factory.mktemp("other"), controllers=True, audit=True) as made:
        yield made
