"""Two clusters: the one that is served, and another that machines may run in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import servers
from tests.support.servers import ControlPlane
from tests.support.sharedworld import nats, shared, world

__all__ = ["nats", "shared", "world"]


@pytest.fixture(scope="package")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster of these tests' own: they look at which others its Secrets lead to, all of them."""
    if reason := servers.missing("etcd", "kube-apiserver", "kube-controller-manager", "nats-server"):
        pytest.skip(reason)
    with servers.control_plane(tmp_path_factory.mktemp("plane"), controllers=True, audit=True) as made:
        yield made
