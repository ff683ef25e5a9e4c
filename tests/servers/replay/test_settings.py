"""The settings by which workers decided come into a recording."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from bus import recordings, streams, subjects
from bus.transport.connection import Bus, connected
from tests.support.natsserver import NatsServer, made_anew
from tests.support.running import eventually, running
from tests.support.samples import KEY, recording, run
from windowbox.settings.bussettings import Access, Deciding

HEADER = recording([]).header
NORTH, SOUTH = Deciding(classes=("north",)), Deciding(classes=("south",))


async def lived(bus: Bus, process: str, settings: Deciding) -> None:
    """A process tells with which settings it runs, and does something."""
    async with running(recordings.tell_settings(bus, process, settings)):
        await eventually(lambda: _told(bus, process, settings))
        await acted(bus, process)


async def acted(bus: Bus, process: str) -> None:
    record = run().model_copy(update={"process": process, "started": datetime.now(UTC)})
    await bus.publish(subjects.run("dnsrecord", KEY), record.encoded())


async def _told(bus: Bus, process: str = "host/1", settings: Deciding = NORTH) -> bool:
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


async def test_settings_are_told_again_to_a_bus_that_has_forgotten(nats: NatsServer) -> None:
    async with connected(Access(nats.url)) as bus:
        await streams.ensure(bus)
        async with running(recordings.tell_settings(bus, "host/1", NORTH)):
            await eventually(lambda: _told(bus))
            nats.wipe()
            nats.start()
            await eventually(lambda: made_anew(bus))
            await eventually(lambda: _told(bus))
