from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import servers
from tests.support.servers import ControlPlane


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    servers.need("etcd", "kube-apiserver", "kube-controller-manager", "nats-server")
    with servers.control_plane(tmp_path / "plane", controllers=True) as made:
        yield made
