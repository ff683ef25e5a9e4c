"""One API server, on which windowbox serves some namespaces and Gardener's own controller another."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import leftovers, servers
from tests.support.machinecontrollermanager import PROGRAM
from tests.support.servers import ControlPlane


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """Each test finds no objects of others."""
    with leftovers.removed():
        yield


@pytest.fixture(scope="package")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    if reason := servers.missing("etcd", "kube-apiserver", "kube-controller-manager", "nats-server", PROGRAM):
        pytest.skip(reason)
    with servers.control_plane(tmp_path_factory.mktemp("plane"), controllers=True, audit=True) as made:
        yield made
