"""Two clusters: the one that is served, and another that machines may run in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from tests.support import servers
from tests.support.kindworld import KindWorld, kind_world
from tests.support.natsserver import NatsServer
from tests.support.servers import ControlPlane


@pytest.fixture(scope="package")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster of these tests' own: they look at which others its Secrets lead to, all of them."""
    if reason := servers.missing("etcd", "kube-apiserver", "kube-controller-manager", "nats-server"):
        pytest.skip(reason)
    with servers.control_plane(tmp_path_factory.mktemp("plane"), controllers=True, audit=True) as made:
        yield made


@pytest_asyncio.fixture
async def world(plane: ControlPlane, nats: NatsServer) -> AsyncIterator[KindWorld]:
    async with kind_world(plane, nats, "infrastructure") as made:
        yield made
