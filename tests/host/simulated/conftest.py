"""A sandbox with two simulated nodes, shared by the tests of their ports and of Pods."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sandbox import roles, stages
from sandbox.options import Options
from sandbox.simulated import simulatedchildren
from sandbox.supervisor import Supervisor
from tests.host.simulated.world import World
from tests.support import servers
from windowbox.clients.kubernetes import kube


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def sandbox(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Supervisor]:
    """Its tests have its event loop, and Services with names of their own."""
    servers.need(*stages.PROGRAMS, *stages.SIMULATED_PROGRAMS)
    if not simulatedchildren.can_listen("127.77.0.1"):
        pytest.skip("127.77.0.1 is no address of this machine: `ifconfig lo0 alias 127.77.0.1` makes it one")
    options = Options(watchers=0, workers=0, patchers=0, simulated_nodes=2)
    async with Supervisor.running(tmp_path_factory.mktemp("simulated") / "sandbox", options) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="package")
async def world(sandbox: Supervisor) -> AsyncIterator[World]:
    network = simulatedchildren.network(sandbox.state.ports["kube-controller-manager"])
    async with kube.from_file(roles.kubeconfig(sandbox.folder, "operator")) as opened:
        yield World(opened, network)
