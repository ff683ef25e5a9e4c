"""Fixtures for tests of the bus: a connection, and a server that can be stopped and emptied."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from bus import streams
from bus.connection import Access, Bus, connected
from tests import servers
from tests.bus.natsserver import NatsServer


@pytest_asyncio.fixture
async def bus(nats_url: str) -> AsyncIterator[Bus]:
    """A connection to a server of the test's own, with all streams."""
    async with connected(Access(nats_url)) as connection:
        await streams.ensure(connection)
        yield connection


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    """A server that keeps its address when it is stopped, emptied and started again."""
    if reason := servers.missing("nats-server"):
        pytest.skip(reason)
    server = NatsServer(tmp_path / "nats")
    server.start()
    try:
        yield server
    finally:
        server.stop()
