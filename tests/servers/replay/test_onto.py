"""A recording, published onto another bus."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from click.testing import CliRunner

from bus import recordings, streams
from bus.messages import TRACE, Announcement
from bus.transport import consumers
from bus.transport.connection import Bus, Stored, connected
from commands.cli import cli
from tests.support.samples import DEMO
from windowbox.errors import Refused
from windowbox.settings.bussettings import Access


@pytest.fixture
async def bus(nats_url: str) -> AsyncIterator[Bus]:
    async with connected(Access(nats_url)) as opened:
        yield opened


async def everything(bus: Bus) -> list[Stored]:
    reading = consumers.snapshot(bus, streams.OBJECTS, ["object.>"], history=True)
    return [stored async for stored in reading]


async def test_objects_arrive_in_order_as_they_were(bus: Bus) -> None:
    demo = recordings.read(DEMO)
    count = await recordings.publish(bus, demo, speed=0)
    found = [recordings.SeenObject.of(stored) for stored in await everything(bus)]
    assert count == len(found) > 100
    for then, now in zip(demo.objects.values(), found, strict=True):
        assert (now.subject, now.body) == (then.subject, then.body)
        assert now.announcement().operation == then.announcement().operation
        assert now.headers[TRACE] == then.headers[TRACE]


async def test_each_version_knows_its_predecessor_on_the_new_bus(bus: Bus) -> None:
    await recordings.publish(bus, recordings.read(DEMO), speed=100_000)
    last: dict[str, int] = {}
    for stored in await everything(bus):
        predecessor = Announcement(stored).predecessor
        # What was seen before the recording began is not on this bus.
        assert predecessor in (0, last.get(stored.subject))
        last[stored.subject] = stored.sequence
    assert len(last) > 20


async def test_a_bus_that_knows_objects_already_is_left_alone(bus: Bus) -> None:
    demo = recordings.read(DEMO)
    await recordings.publish(bus, demo, speed=0)
    before = len(await everything(bus))
    with pytest.raises(Refused, match="knows objects already"):
        await recordings.publish(bus, demo, speed=0)
    assert len(await everything(bus)) == before


def test_the_command_tells_how_much_it_has_published(nats_url: str) -> None:
    shown = CliRunner().invoke(cli, ["replay", str(DEMO), "--onto", nats_url, "--speed", "0"])
    assert shown.exit_code == 0
    assert shown.output == f"134 object versions published onto {nats_url}\n"
