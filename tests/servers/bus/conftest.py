"""The tests of the bus run on one server, and on three whose leaders step down all the time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import servers
from tests.support.natscluster import NatsCluster
from tests.support.natsserver import NatsServer

_UNREST = 0.3
"""Seconds between two leaders that step down."""


@pytest.fixture(scope="session")
def nats_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    """Three servers for all tests, one test after the other."""
    if reason := servers.missing("nats-server"):
        pytest.skip(reason)
    cluster = NatsCluster(tmp_path_factory.mktemp("cluster"))
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(params=["one", "three"])
def nats_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where a bus is that this test has for itself."""
    if request.param == "one":
        folder = tmp_path / "nats"
        folder.mkdir()
        with servers.nats_server(folder) as url:
            yield url
        return
    cluster: NatsCluster = request.getfixturevalue("nats_cluster")
    cluster.clear()
    with cluster.unrest(_UNREST):
        yield cluster.url


@pytest.fixture
def one_server(tmp_path: Path) -> Iterator[NatsServer]:
    """One server, where that is what a test is about."""
    server = NatsServer(tmp_path / "nats")
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(params=["one", "three"])
def nats(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NatsServer | NatsCluster]:
    """Servers that keep their addresses when they are stopped, emptied and started again."""
    folder = tmp_path / "nats"
    server = NatsServer(folder) if request.param == "one" else NatsCluster(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()
