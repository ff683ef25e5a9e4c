"""A sandbox with two simulated nodes, shared by all tests here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from sandbox import detached, stages
from sandbox.options import TOGETHER
from sandbox.simulated import simulatedchildren
from tests.host.simulated.world import Sandbox, World
from tests.support import servers
from windowbox.clients.kubernetes import kube

OPTIONS = {**TOGETHER, "admits": 1, "garden_admits": 1, "simulated_nodes": 2}


@pytest.fixture(scope="package")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    servers.need(*stages.PROGRAMS, *stages.SIMULATED_PROGRAMS)
    if not simulatedchildren.can_listen("127.77.0.1"):
        pytest.skip("127.77.0.1 is no address of this machine: `ifconfig lo0 alias 127.77.0.1` makes it one")
    folder = tmp_path_factory.mktemp("simulated") / "sandbox"
    try:
        yield Sandbox(folder, detached.up(folder, OPTIONS))
    finally:
        detached.down(folder, wipe=True)


@pytest_asyncio.fixture
async def world(sandbox: Sandbox) -> AsyncIterator[World]:
    async with kube.from_file(sandbox.kubeconfig) as opened:
        yield World(opened, sandbox.network)
