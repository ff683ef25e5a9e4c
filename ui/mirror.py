"""What the page knows of the cloud: followed on the bus, once for all viewers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import orjson

from bus import streams, subjects
from bus.leases import presence
from bus.messages import Reason, Result
from bus.transport import consumers
from bus.transport.connection import Bus, Stored
from bus.views import View
from bus.workqueue.queue import Scheduled
from ui.health import Health, health
from ui.rates import Rates
from windowbox.errors import WindowboxError
from windowbox.kinds import KINDS
from windowbox.models.objects import Object
from windowbox.models.refs import DNSRECORDS, ObjectRef

logger = logging.getLogger(__name__)

FOLLOWED = tuple(dict.fromkeys(row.resource.id for row in KINDS))
"""The kinds whose health is shown."""
_AGAIN = 1.0
_PRESENCE = 2.0
"""Seconds for which the answers of processes are believed: no event says that one has ended."""
_MOST_TARGETS, _LONGEST_NAME = 64, 253
_ILL = (Result.FAILED, Result.WAITING)

Place = tuple[str, str]
"""A pool, and the key of an object."""


@dataclass(frozen=True)
class LastRun:
    """The last run about an object in a pool that has failed, or waits."""

    pool: str
    ref: ObjectRef
    failed: bool
    note: str
    started: float
    attempt: int
    since: float
    """The start of the first of the runs in a row that ended so."""
    certain: bool
    """Whether `since` is known, or runs from before this process began were not looked at."""


@dataclass(frozen=True)
class Later:
    """When an object is taken up again."""

    due: float
    made: float
    note: str
    quarantined: bool


def with_run(found: Health, run: LastRun) -> Health:
    """The health of an object whose last run has failed, or waits: a run's words say more than a status."""
    if found.state == "leaving":
        return found._replace(why=run.note or found.why)
    return Health("failed" if run.failed else "busy", run.note or found.why, run.since)


class Pointer(NamedTuple):
    """Where a DNSRecord points to."""

    name: str
    type: str
    targets: tuple[str, ...]


def pointer(_: ObjectRef, record: Object) -> Pointer | None:
    """None if it points nowhere; a TXT record has values that are no addresses."""
    spec, values = record.spec, record.spec.get("values")
    if not isinstance(values, list) or spec.get("recordType") not in ("A", "AAAA", "CNAME"):
        return None
    targets = tuple(dict.fromkeys(str(one).rstrip(".") for one in values[:_MOST_TARGETS]))
    return Pointer(str(spec.get("name", ""))[:_LONGEST_NAME], str(spec["recordType"]), targets)


class Mirror:
    """Follows the runs, their schedules, the health of objects, and who is there."""

    def __init__(self, bus: Bus, changed: Callable[[str], None]) -> None:
        """`changed` is called with `health` or `runs`."""
        self.bus = bus
        self._changed = changed
        self.ill: dict[Place, LastRun] = {}
        self.later: dict[Place, Later] = {}
        self.rates = Rates()
        self.complete = asyncio.Event()
        """Set once the journal has been read to its end."""
        self.objects: dict[str, View[Health]] = {
            kind: View(bus, kind, health, lambda one: one.state, lambda: changed("health"))
            for kind in FOLLOWED
        }
        self.records = View(bus, DNSRECORDS.id, pointer, indexes=lambda one: one.targets)
        """Where DNSRecords point to, found by what they point to."""
        self._processes: list[dict[str, Any]] = []
        self._asked = -_PRESENCE
        self._asking = asyncio.Lock()

    @property
    def tasks(self) -> dict[str, Callable[[], Any]]:
        """What has to run."""
        views = {f"view of {kind}": view.run for kind, view in self.objects.items()}
        return {
            "runs": self._follow_runs,
            "schedules": self._follow_later,
            "records": self.records.run,
            **views,
        }

    @property
    def settled(self) -> bool:
        """Whether everything has been read that was there at the start."""
        return self.complete.is_set() and all(view.complete.is_set() for view in self.objects.values())

    async def processes(self) -> list[dict[str, Any]]:
        """The processes of windowbox as they describe themselves, a moment ago."""
        async with self._asking:
            now = asyncio.get_running_loop().time()
            if now - self._asked > _PRESENCE:
                self._processes = await presence.processes(self.bus)
                self._asked = asyncio.get_running_loop().time()
            return self._processes

    async def learn_since(self, place: Place) -> None:
        """Find out since when the runs end as the last one: from the journal, once."""
        last = self.ill.get(place)
        if last is None or last.certain:
            return
        since, filters = last.started, [subjects.run(*place)]
        async for stored in consumers.snapshot(self.bus, streams.JOURNAL, filters, history=True):
            run = orjson.loads(stored.data)
            ended, started = Result(run["outcome"]), _seconds(run["started"])
            if started > last.started:
                break
            same = ended in _ILL and (ended is Result.FAILED) == last.failed
            since = min(since, started) if same else last.started
        if self.ill.get(place) is last:
            self.ill[place] = replace(last, since=since, certain=True)

    async def _follow_runs(self) -> None:
        """Each object's last run, then the runs of the last minutes, which rates need, and all new ones."""
        while True:
            since = datetime.now(UTC) - timedelta(seconds=Rates.SECONDS)
            fresh = dict[Place, LastRun]()
            try:
                async for stored in consumers.snapshot(self.bus, streams.JOURNAL, ["run.>"]):
                    self._take_run(stored, fresh)
                self.ill, self.rates = fresh, Rates()
                following = consumers.follow(self.bus, streams.JOURNAL, ["run.>"], since=since)
                async for one in following:
                    if one is None:
                        self.complete.set()
                        self._changed("health")
                    else:
                        self._take_run(one, self.ill, self.rates)
            except WindowboxError as error:
                logger.debug("runs: %s", error)
            await asyncio.sleep(_AGAIN)

    def _take_run(self, stored: Stored, ill: dict[Place, LastRun], rates: Rates | None = None) -> None:
        run: Mapping[str, Any] = orjson.loads(stored.data)
        outcome, started = Result(run["outcome"]), _seconds(run["started"])
        place = (str(run["pool"]), str(run["key"]))
        failed = outcome is Result.FAILED
        if rates:
            at = int(stored.time) / 1e9
            rates.count(place[0], at, failed=failed, seconds=float(run["seconds"]))
            self._changed("runs")
        known = ill.get(place)
        if known and started < known.started:
            return
        if outcome in _ILL:
            same = known if known and known.failed == failed else None
            attempt = int((run.get("wish") or {}).get("attempt", 0))
            ill[place] = LastRun(
                place[0], subjects.ref(place[1]), failed, str(run.get("note", "")), started, attempt,
                same.since if same else started, same.certain if same else bool(known),
            )  # fmt: skip
        elif ill.pop(place, None) is None:
            return
        if self.complete.is_set():
            self._changed("health")

    async def _follow_later(self) -> None:
        while True:
            fresh = dict[Place, Later]()
            self.later = fresh
            with contextlib.suppress(WindowboxError):
                async for stored in consumers.follow(self.bus, streams.LATER, ["later.>"]):
                    if stored is not None:
                        self._take_later(stored, fresh)
            await asyncio.sleep(_AGAIN)

    def _take_later(self, stored: Stored, into: dict[Place, Later]) -> None:
        made = int(stored.time) / 1e9
        at = datetime.fromtimestamp(made, UTC).isoformat()
        one = Scheduled.of(stored._replace(time=at))
        _, pool, key = stored.subject.split(".", 2)
        quarantined = one.wish.reason is Reason.QUARANTINED
        known = into.get((pool, key))
        into[pool, key] = Later(one.due.timestamp(), made, one.wish.note, quarantined)
        if quarantined or (known and known.quarantined):
            self._changed("health")
        if len(into) > 2 * _MOST_LATER:
            _forget_oldest(into)


_MOST_LATER = 20_000


def _forget_oldest(later: dict[Place, Later]) -> None:
    """Nothing says that a schedule has fired: those that are long due go."""
    for place in sorted(later, key=lambda one: later[one].due)[:_MOST_LATER]:
        del later[place]


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()
