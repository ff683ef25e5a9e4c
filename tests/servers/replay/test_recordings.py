"""A recording, published onto another bus."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner

from bus import recordings, streams, subjects
from bus.messages import TRACE, Announcement
from bus.transport import consumers
from bus.transport.connection import Bus, Stored, connected
from commands.cli import cli
from tests.support.natsserver import NatsServer, emptied
from tests.support.running import eventually, running
from tests.support.samples import DEMO, KEY, recording, run
from windowbox.errors import Refused
from windowbox.settings.bussettings import Access, Deciding


@pytest.fixture
async def empty(nats_url: str) -> AsyncIterator[Bus]:
    async with connected(Access(nats_url)) as opened:
        yield opened


async def everything(bus: Bus) -> list[Stored]:
    reading = consumers.snapshot(bus, streams.OBJECTS, ["object.>"], history=True)
    return [stored async for stored in reading]


async def test_objects_arrive_in_order_as_they_were(empty: Bus) -> None:
    demo = recordings.read(DEMO)
    count = await recordings.publish(empty, demo, speed=0)
    found = [recordings.SeenObject.of(stored) for stored in await everything(empty)]
    assert count == len(found) > 100
    for then, now in zip(demo.objects.values(), found, strict=True):
        assert (now.subject, now.body) == (then.subject, then.body)
        assert now.announcement().operation == then.announcement().operation
        assert now.headers[TRACE] == then.headers[TRACE]


async def test_each_version_knows_its_predecessor_on_the_new_bus(empty: Bus) -> None:
    await recordings.publish(empty, recordings.read(DEMO), speed=100_000)
    last: dict[str, int] = {}
    for stored in await everything(empty):
        predecessor = Announcement(stored).predecessor
        # What was seen before the recording began is not on this bus.
        assert predecessor in (0, last.get(stored.subject))
        last[stored.subject] = stored.sequence
    assert len(last) > 20


async def test_a_bus_that_knows_objects_already_is_left_alone(empty: Bus) -> None:
    demo = recordings.read(DEMO)
    await recordings.publish(empty, demo, speed=0)
    before = len(await everything(empty))
    with pytest.raises(Refused, match="knows objects already"):
        await recordings.publish(empty, demo, speed=0)
    assert len(await everything(empty)) == before


def test_the_command_prints_the_number_of_versions(nats_url: str) -> None:
    shown = CliRunner().invoke(cli, ["replay", str(DEMO), "--onto", nats_url, "--speed", "0"])
    assert shown.exit_code == 0
    assert shown.output == f"134 object versions published onto {nats_url}\n"


HEADER = recording([]).header
NORTH, SOUTH = Deciding(classes=("north",)), Deciding(classes=("south",))


async def lived(bus: Bus, process: str, settings: Deciding) -> None:
    """A process tells with which settings it runs, and does something."""
    async with running(recordings.tell_settings(bus, process, settings)):
        await eventually(lambda: _described(bus, process, settings))
        await acted(bus, process)


async def acted(bus: Bus, process: str) -> None:
    record = run().model_copy(update={"process": process, "started": datetime.now(UTC)})
    await bus.publish(subjects.run("dnsrecord", KEY), record.encoded())


async def _described(bus: Bus, process: str = "host/1", settings: Deciding = NORTH) -> bool:
    found = await bus.last(streams.JOURNAL, subjects.settings(process))
    return found is not None and recordings.SeenProcess.model_validate_json(found.data).settings == settings


async def test_each_process_is_recorded_with_its_own_settings(bus: Bus) -> None:
    await lived(bus, "host/1", NORTH)
    await lived(bus, "host/1", SOUTH)  # after a restart, with the same number
    await acted(bus, "host/2")  # of an earlier version, which tells nothing
    header = HEADER.model_copy(update={"until": datetime.now(UTC) + timedelta(seconds=1)})
    found = await recordings.recorded(bus, header, ["dnsrecord"])
    assert [found.header.settings_of(one) for one in found.runs] == [NORTH, SOUTH, header.settings]
    assert len({one.process for one in found.runs}) == 3
    assert not any("host" in one.process for one in found.runs)


async def test_settings_are_written_again_to_an_emptied_bus(nats: NatsServer, nats_bus: Bus) -> None:
    async with running(recordings.tell_settings(nats_bus, "host/1", NORTH)):
        await eventually(lambda: _described(nats_bus))
        await emptied(nats, nats_bus)
        await eventually(lambda: _described(nats_bus))
