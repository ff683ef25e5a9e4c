"""An API server for all tests here, with controllers and an audit log: use a Shoot of your own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import servers
from tests.support.servers import ControlPlane


@pytest.fixture(scope="package")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    if reason := servers.missing("etcd", "kube-apiserver", "kube-controller-manager", "nats-server"):
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("plane")
    with servers.control_plane(folder, controllers=True, audit=True) as made:
        yield made
