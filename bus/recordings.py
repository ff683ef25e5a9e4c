"""Recordings: one file with the runs of a period, the objects they read, and the answers they got.

A recording has one JSON value on each line, and is packed by gzip: first a header, then objects by their
place on the bus, then runs, and then decisions of webhooks, by their time. It holds nothing secret, and
names processes only by number.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError

from bus import streams, subjects
from bus.messages import PREDECESSOR, Announcement, Message, ReviewRecord, RunRecord
from bus.transport import consumers
from bus.transport.connection import Bus, Stored, instant
from windowbox.errors import Malformed, Refused, WindowboxError
from windowbox.settings.bussettings import Deciding

FORMAT = 1

_READERS = 64
_TELL_AGAIN = 3600.0
_SOON = 2.0


class Header(Message):
    """The first line of a recording."""

    recording: int
    """The number of the format."""
    version: str
    """The version of windowbox that recorded."""
    since: datetime
    until: datetime
    settings: Deciding
    """The settings of the recording process."""
    processes: Mapping[str, Deciding] = {}
    """The settings of processes that had others, by their names in the runs."""

    def encoded(self) -> bytes:
        return self.model_dump_json().encode()  # with defaults: another version may have others

    def settings_of(self, run: RunRecord) -> Deciding:
        """The settings that decided what a run did."""
        return self.processes.get(run.process, self.settings)


class SeenProcess(Message):
    """The settings that a process had at some time, without secrets."""

    process: str
    settings: Deciding

    def encoded(self) -> bytes:
        return self.model_dump_json().encode()


class SeenObject(Message):
    """A message of OBJECTS."""

    subject: str
    sequence: int
    time: int
    """When it was stored, in nanoseconds since 1970."""
    headers: dict[str, str]
    body: dict[str, Any] | None = None

    @classmethod
    def of(cls, stored: Stored) -> SeenObject:
        # Headers of the server, and the id by which it finds duplicates, have no meaning elsewhere.
        headers = {name: value for name, value in stored.headers.items() if not name.startswith("Nats-")}
        body = orjson.loads(stored.data) if stored.data else None
        return cls(
            subject=stored.subject,
            sequence=stored.sequence,
            time=int(stored.time),
            headers=headers,
            body=body,
        )

    @property
    def data(self) -> bytes:
        return orjson.dumps(self.body) if self.body is not None else b""

    def announcement(self) -> Announcement:
        return Announcement(Stored(self.subject, self.sequence, str(self.time), self.headers, self.data))


@dataclass(frozen=True)
class Recording:
    """The content of a recording."""

    header: Header
    objects: dict[int, SeenObject]
    """By their sequence."""
    runs: list[RunRecord]
    reviews: list[ReviewRecord] = field(default_factory=list)
    """The decisions of webhooks."""


async def recorded(bus: Bus, header: Header, pools: Iterable[str]) -> Recording:
    """The messages of the period in `header` that the bus still holds."""
    of_pools = [subjects.run(pool, ">") for pool in pools]
    stored_runs = _within(bus, header, streams.JOURNAL, of_pools)
    runs = [RunRecord.model_validate_json(stored.data) async for stored in stored_runs]
    seen = _within(bus, header, streams.OBJECTS, [subjects.SEEN_ALL])
    objects = {stored.sequence: SeenObject.of(stored) async for stored in seen}
    needed = {
        read.sequence
        for run in runs
        for read in run.reads
        if read.stream == streams.OBJECTS and read.sequence
    }
    room = asyncio.Semaphore(_READERS)

    async def fetch(sequence: int) -> None:
        async with room:
            stored = await bus.at(streams.OBJECTS, sequence)
        if stored is not None:
            time = str(int(instant(stored.time) * 1e9))
            objects[sequence] = SeenObject.of(stored._replace(time=time))

    await asyncio.gather(*map(fetch, needed - objects.keys()))
    known, runs = await _nameless(bus, sorted(runs, key=lambda run: run.started))
    processes = {
        name: settings for name, settings in known.items() if settings not in (None, header.settings)
    }
    reviews = [
        ReviewRecord.model_validate_json(stored.data).model_copy(update={"process": ""})
        async for stored in _within(bus, header, streams.REVIEWS, [subjects.review(">")], history=True)
    ]
    return Recording(
        header.model_copy(update={"processes": processes}),
        dict(sorted(objects.items())),
        runs,
        sorted(reviews, key=lambda review: review.decided),
    )


async def tell_settings(bus: Bus, process: str, settings: Deciding) -> None:
    """Write the settings of a process to the journal, for recordings; never returns.

    Often enough that the journal holds them as long as its runs, and after each reconnect.
    """
    encoded = SeenProcess(process=process, settings=settings).encoded()
    again = asyncio.Event()
    with bus.on_reconnect(again.set):
        while True:
            again.clear()
            try:
                await bus.publish(subjects.settings(process), encoded)
                pause = _TELL_AGAIN
            except WindowboxError:  # the journal may not exist yet
                pause = _SOON
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await again.wait()


def write(path: Path, recording: Recording) -> None:
    """Write the file. The same recording gives the same bytes."""
    try:
        with path.open("wb") as file, gzip.GzipFile("", "wb", mtime=0, fileobj=file) as packed:
            packed.write(recording.header.encoded() + b"\n")
            for object in recording.objects.values():
                packed.write(b'{"object":%b}\n' % object.encoded())
            for run in recording.runs:
                packed.write(b'{"run":%b}\n' % run.encoded())
            for review in recording.reviews:
                packed.write(b'{"review":%b}\n' % review.encoded())
    except OSError as error:
        raise Refused(f"{path} cannot be written: {error.strerror}; choose another file") from error


def read(path: Path) -> Recording:
    """The recording in a file. Malformed names the line that is wrong."""
    try:
        lines = gzip.decompress(path.read_bytes()).splitlines()
    except (OSError, EOFError) as error:
        raise Malformed(f"{path} cannot be read as a recording: {error}") from error
    if not lines:
        raise Malformed(f"{path} is empty: no recording of windowbox")
    try:
        header = Header.model_validate_json(lines[0])
    except ValidationError as error:
        raise Malformed(f"{path} is not a recording of windowbox: it has no header") from error
    if header.recording != FORMAT:
        raise Malformed(
            f"{path} has format {header.recording}, this windowbox reads {FORMAT}: "
            f"replay it with windowbox {header.version}"
        )
    objects: dict[int, SeenObject] = {}
    runs: list[RunRecord] = []
    reviews: list[ReviewRecord] = []
    for number, line in enumerate(lines[1:], 2):
        try:
            match orjson.loads(line):
                case {"object": found}:
                    object = SeenObject.model_validate(found)
                    objects[object.sequence] = object
                case {"run": found}:
                    runs.append(RunRecord.model_validate(found))
                case {"review": found}:
                    reviews.append(ReviewRecord.model_validate(found))
                case _:
                    raise ValueError("neither an object, a run nor a review")
        except ValueError as error:
            raise Malformed(f"{path}, line {number}: {error}") from error
    return Recording(header, objects, runs, reviews)


async def publish(bus: Bus, recording: Recording, speed: float) -> int:
    """Announce the recorded objects on another bus, `speed` times as fast as they came; 0: without pauses."""
    await streams.ensure(bus)
    if (await bus.api(f"STREAM.INFO.{streams.OBJECTS}"))["state"]["messages"]:
        raise Refused(
            "this bus knows objects already, and would take recorded ones for news of them: give an empty one"
        )
    loop = asyncio.get_running_loop()
    places: dict[int, int] = {}
    began, first = loop.time(), next((object.time for object in recording.objects.values()), 0)
    for object in recording.objects.values():
        if speed:
            await asyncio.sleep(began + (object.time - first) / 1e9 / speed - loop.time())
        # The previous version has another sequence on this bus.
        before = places.get(object.announcement().predecessor, 0)
        headers = {**object.headers, PREDECESSOR: str(before)}
        sequence = await bus.publish(object.subject, object.data, headers)
        places[object.sequence] = sequence or 0
    return len(places)


async def _within(
    bus: Bus, header: Header, stream: str, filters: list[str], *, history: bool = False
) -> AsyncIterator[Stored]:
    """The messages of the period in `header`."""
    async for stored in consumers.snapshot(bus, stream, filters, history=history, since=header.since):
        if _seconds(stored) <= header.until.timestamp():
            yield stored


async def _nameless(bus: Bus, runs: list[RunRecord]) -> tuple[dict[str, Deciding | None], list[RunRecord]]:
    """Replace the names of processes in the runs. Returns the settings by new name, and the runs."""
    # A restarted process may have the name of its predecessor, so each has settings by time.
    known: dict[str, list[tuple[float, Deciding]]] = {}
    async for stored in consumers.snapshot(bus, streams.JOURNAL, ["settings.>"], history=True):
        seen = SeenProcess.model_validate_json(stored.data)
        known.setdefault(seen.process, []).append((_seconds(stored), seen.settings))
    # By the text of the settings: a mapping in them has no hash.
    names: dict[tuple[str, str], str] = {}
    deciding: dict[str, Deciding | None] = {}
    renamed = []
    for run in runs:
        by_time = known.get(run.process, [])
        before = [settings for when, settings in by_time if when <= run.started.timestamp()]
        # If the journal has dropped the last settings before the run, the next ones.
        settings = before[-1] if before else by_time[0][1] if by_time else None
        text = settings.model_dump_json() if settings else ""
        name = names.setdefault((run.process, text), f"process {len(names) + 1}")
        deciding[name] = settings
        renamed.append(run.model_copy(update={"process": name}))
    return deciding, renamed


def _seconds(stored: Stored) -> float:
    return int(stored.time) / 1e9
