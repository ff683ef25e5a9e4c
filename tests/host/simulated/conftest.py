"""A cluster with two simulated nodes, shared by all tests here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from sandbox.simulated import simulatedchildren
from tests.host.simulated.world import FIRST, NETWORK, World
from tests.support import servers
from tests.support.servers import ControlPlane
from windowbox.clients.kubernetes import kube


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of its own, with controllers, because nodes are added to it."""
    servers.need("etcd", "kube-apiserver", "kube-controller-manager")
    if not simulatedchildren.can_listen(FIRST):
        pytest.skip(f"{FIRST} is no address of this machine: `ifconfig lo0 alias {FIRST}` makes it one")
    with servers.control_plane(tmp_path_factory.mktemp("simulated"), controllers=True) as plane:
        yield plane


@pytest.fixture(scope="package")
def simulated(cluster: ControlPlane) -> Iterator[ControlPlane]:
    """The node simulator simulates `simulated-1` and `simulated-2`."""
    child = simulatedchildren.node_simulator(cluster.kubeconfig, 2, NETWORK)
    with servers.running(child, cluster.kubeconfig.parent):
        yield cluster


@pytest_asyncio.fixture
async def world(simulated: ControlPlane) -> AsyncIterator[World]:
    async with kube.from_file(simulated.kubeconfig) as opened:
        yield World(opened)
