"""Fixtures for all tests: servers of the test's own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import hypothesis
import pytest
import pytest_asyncio
import uvloop

from bus.transport.connection import Bus, connected
from sandbox.servers import zoneserver
from tests.support import servers
from tests.support.natsserver import NatsServer, ensured, made_anew
from tests.support.roles import RoleServer, role_server
from tests.support.running import eventually
from tests.support.servers import ControlPlane, NameServer
from windowbox.settings.bussettings import Access

# How long an example takes says more of the machine, and of what else it does, than of the code.
# On every save fewer examples are enough.
_EXAMPLES = 100 if "CI" in os.environ else 30
hypothesis.settings.register_profile("windowbox", deadline=None, max_examples=_EXAMPLES)
hypothesis.settings.load_profile("windowbox")

# As in an edge (windowbox/clients/xds/server.py), where gRPC is imported later: in tests pytest may import it
# before, and children that a test forks beside a stream would crash.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

pytest_plugins = (
    "tests.support.garbage",
    "tests.support.scheduling",
    "tests.support.durations",
    "tests.support.skips",
    "tests.support.tempfiles",
)


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Tests run on the event loop of windowbox's processes."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
def nats_url(tmp_path: Path) -> Iterator[str]:
    """A NATS server of the test's own, with JetStream, on a port the system chose."""
    _need("nats-server")
    folder = tmp_path / "nats"
    folder.mkdir()
    with servers.nats_server(folder) as url:
        yield url


@pytest_asyncio.fixture
async def bus(nats_url: str) -> AsyncIterator[Bus]:
    """A connection to a NATS server of the test's own, with all streams."""
    async with connected(Access(nats_url)) as connection:
        await ensured(connection)
        yield connection


@pytest.fixture
def roles(tmp_path: Path) -> Iterator[RoleServer]:
    """A NATS server of the test's own, with a user for each role."""
    _need("nats-server")
    with role_server(tmp_path) as server:
        yield server


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    """A NATS server that keeps its address when it is stopped, emptied and started again."""
    _need("nats-server")
    server = NatsServer(tmp_path / "nats")
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest_asyncio.fixture
async def nats_bus(nats: NatsServer) -> AsyncIterator[Bus]:
    """A connection to `nats`, with all streams."""
    async with connected(Access(nats.url)) as connection:
        await eventually(lambda: made_anew(connection))
        yield connection


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """etcd and an API server with our kinds and rights, shared by all tests: use a namespace of your own."""
    _need("etcd", "kube-apiserver")
    with servers.control_plane(tmp_path_factory.mktemp("control-plane")) as plane:
        yield plane


@pytest.fixture
def named(tmp_path: Path) -> Iterator[NameServer]:
    """A name server of the test's own, with the zone local.gardener.cloud and a key for updates."""
    _need("named")
    with servers.name_server(tmp_path / "named", key=zoneserver.new_key()) as server:
        yield server


def _need(*programs: str) -> None:
    if reason := servers.missing(*programs):
        pytest.skip(reason)
