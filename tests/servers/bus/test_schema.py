"""A newer version may fill the bus while older processes run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from bus import schema, streams
from bus.schema import Schema
from bus.transport.connection import Bus, connected
from tests.support import servers
from tests.support.natsserver import NatsServer
from windowbox.errors import Refused
from windowbox.settings.bussettings import Access

_UNREADABLE = r"schema 9, which windowbox with schema 8 or newer reads"
_PATIENCE = 60.0


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    if reason := servers.missing("nats-server"):
        pytest.skip(reason)
    server = NatsServer(tmp_path / "nats")
    server.start()
    try:
        yield server
    finally:
        server.stop()


async def upgrade(bus: Bus) -> None:
    """What a newer watcher does to a stream."""
    config = (await bus.api("STREAM.INFO.WORK"))["config"]
    await bus.api("STREAM.UPDATE.WORK", {**config, "metadata": Schema(9, 8).metadata})


async def test_a_running_process_ends_when_a_newer_version_takes_over(nats: NatsServer) -> None:
    async with asyncio.timeout(_PATIENCE), connected(Access(nats.url, name="worker")) as bus:
        watching = asyncio.create_task(schema.watch(bus, "WORK", interval=0.05))
        await streams.ensure(bus)  # the stream is not there from the beginning
        await upgrade(bus)
        with pytest.raises(Refused, match=_UNREADABLE):
            await watching


async def test_the_schema_is_checked_after_a_reconnect(nats: NatsServer) -> None:
    async with asyncio.timeout(_PATIENCE), connected(Access(nats.url, name="worker")) as bus:
        await streams.ensure(bus)
        watching = asyncio.create_task(schema.watch(bus, "WORK", interval=3600))
        await asyncio.sleep(0)  # it asks before the stream changes
        await upgrade(bus)
        nats.restart()
        with pytest.raises(Refused, match=_UNREADABLE):
            await watching
