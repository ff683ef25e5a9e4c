"""Tests of the bus run on one server, and at night on three whose leaders step down all the time.

Those that elections may break run on three each time: `tests.support.natscluster.on_three`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from bus.transport.connection import Bus, connected
from tests.support import servers
from tests.support.natscluster import NatsCluster
from tests.support.natsserver import NatsServer, made_anew, started
from tests.support.running import eventually
from windowbox.settings.bussettings import Access

_EITHER = ["one", pytest.param("three", marks=pytest.mark.long)]

_UNREST = 0.3
"""Seconds between two leaders that step down."""


@pytest.fixture(scope="session")
def nats_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    """Three servers for all tests, one test after the other."""
    if reason := servers.missing("nats-server"):
        pytest.skip(reason)
    with started(NatsCluster(tmp_path_factory.mktemp("cluster"))) as cluster:
        yield cluster


@pytest.fixture(params=_EITHER)
def nats_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a bus for this test alone."""
    if request.param == "one":
        (tmp_path / "nats").mkdir()
        with servers.nats_server(tmp_path / "nats") as url:
            yield url
        return
    cluster: NatsCluster = request.getfixturevalue("nats_cluster")
    cluster.clear()
    with cluster.unrest(_UNREST):
        yield cluster.url


@pytest.fixture(params=_EITHER)
def nats(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NatsServer | NatsCluster]:
    """Servers that keep their addresses when they are stopped, emptied and started again."""
    folder = tmp_path / "nats"
    with started(NatsServer(folder) if request.param == "one" else NatsCluster(folder)) as server:
        yield server


@pytest.fixture
def one_server(tmp_path: Path) -> Iterator[NatsServer]:
    """One server, for tests in which its own state matters."""
    if reason := servers.missing("nats-server"):
        pytest.skip(reason)
    with started(NatsServer(tmp_path / "nats")) as server:
        yield server


@pytest_asyncio.fixture
async def one_bus(one_server: NatsServer) -> AsyncIterator[Bus]:
    """A connection to `one_server`, with all streams."""
    async with connected(Access(one_server.url)) as bus:
        await eventually(lambda: made_anew(bus))
        yield bus
