"""An API server that asks webhooks, and nothing of them left behind."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from bus.transport.connection import connected
from tests.support.admission import Seed
from tests.support.natsserver import ensured
from tests.support.roles import RoleServer
from tests.support.servers import ControlPlane
from windowbox.clients.kubernetes import kube


@pytest_asyncio.fixture
async def bus_server(roles: RoleServer) -> RoleServer:
    """A bus with all streams, as watchers make them."""
    async with connected(roles.access("operator")) as bus:
        await ensured(bus)
    return roles


@pytest_asyncio.fixture
async def seed(plane: ControlPlane) -> AsyncIterator[Seed]:
    async with kube.from_file(plane.kubeconfig) as opened:
        made = Seed(opened)
        await made.clear()
        try:
            yield made
        finally:
            await made.clear()
