"""A sandbox whose bus is three NATS servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from bus.transport.connection import Bus, connected
from sandbox.supervisor import Supervisor
from tests.support.running import eventually
from windowbox.errors import TransientError
from windowbox.settings import settings

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def test_every_stream_has_a_copy_on_each_server(sandbox: Supervisor) -> None:
    assert sandbox.bus_servers == ["nats-server", "nats-server-2", "nats-server-3"]
    assert len({sandbox.store(name) for name in sandbox.bus_servers}) == 3
    async with connected(_operator(sandbox).nats.access("test")) as bus:
        found = await eventually(lambda: _replicas(bus))
    assert set(found) == {3}


async def test_each_server_in_turn_may_die(sandbox: Supervisor) -> None:
    async with connected(_operator(sandbox).nats.access("test")) as bus:
        for name in sandbox.bus_servers:
            await sandbox.stop(name)
            await eventually(lambda: _stored(bus), 90)
            await sandbox.start(name)


async def _replicas(bus: Bus) -> list[int]:
    streams = (await bus.api("STREAM.LIST", repeat=True))["streams"] or []
    return [stream["config"]["num_replicas"] for stream in streams]


async def _stored(bus: Bus) -> bool:
    """Whether something was stored, in spite of the server that is away."""
    try:
        return bool(await bus.publish("object.test", b"{}", repeat=True))
    except TransientError:  # the others have not agreed on a leader yet
        return False


def _operator(sandbox: Supervisor) -> settings.Settings:
    return settings.load(Path(sandbox.settings_file("operator")))
