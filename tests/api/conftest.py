"""The cluster that is served, and another one that its machines may run in."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support import leftovers, servers
from tests.support.kindworld import KindWorld, kind_world
from tests.support.natsserver import NatsServer
from tests.support.servers import ControlPlane
from windowbox.secretsmanager import generation


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """Each test finds no objects of others, but their namespaces."""
    with leftovers.removed():
        yield


@pytest.fixture(scope="package", autouse=True)
def shorter_keys() -> Iterator[None]:
    """Keys that are made in a quarter of the time, which was most of what tests of control planes took.

    Their length is a subject of tests/unit/secretsmanager.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generation, "_BITS", 2048)
        yield


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """For kinds that make objects, with controllers and an audit log: use a Shoot of your own.

    It stays while other folders have their turn: idle, it takes in six minutes what a start takes.
    Tests of load balancers have `control_plane`: they look at all Services and nodes, and these leave some.
    """
    with _started(tmp_path_factory.mktemp("plane")) as made:
        yield made


@pytest.fixture(scope="session")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Another cluster, for machines."""
    with _started(tmp_path_factory.mktemp("other")) as made:
        yield made


def _started(folder: Path) -> contextlib.AbstractContextManager[ControlPlane]:
    if reason := servers.missing("etcd", "kube-apiserver", "kube-controller-manager", "nats-server"):
        pytest.skip(reason)
    return servers.control_plane(folder, controllers=True, audit=True)


@pytest_asyncio.fixture
async def world(
    request: pytest.FixtureRequest, plane: ControlPlane, nats: NatsServer
) -> AsyncIterator[KindWorld]:
    """A process of each role: workers serve the pools, with the settings, of `@pytest.mark.serves(…)`."""
    served = request.node.get_closest_marker("serves")
    async with kind_world(plane, nats, *served.args, **served.kwargs) as made:
        yield made
