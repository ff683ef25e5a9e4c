"""An API server that calls webhooks; their configurations are removed afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from bus.transport.connection import connected
from commands.roles.admitting import Admitting
from tests.support.admission import Seed, admitted, settings_for
from tests.support.natsserver import ensured
from tests.support.roles import RoleServer
from tests.support.servers import ControlPlane
from windowbox.clients.kubernetes import kube
from windowbox.settings.settings import Settings


@dataclass(frozen=True)
class Hooks(Seed):
    """The same with a bus, and the processes that answer."""

    plane: ControlPlane
    bus: RoleServer

    def settings(self, **webhooks: Any) -> Settings:
        return settings_for(self.plane, self.bus, **webhooks)

    def admitted(self, **webhooks: Any) -> contextlib.AbstractAsyncContextManager[Admitting]:
        """A process with these settings."""
        return admitted(self.settings(**webhooks))


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


@pytest.fixture
def hooks(seed: Seed, plane: ControlPlane, bus_server: RoleServer) -> Hooks:
    return Hooks(seed.kube, plane, bus_server)
