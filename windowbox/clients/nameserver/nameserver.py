"""Change and read DNS records on the servers of the configured zones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from functools import partial

from dns.rdatatype import RdataType

from windowbox.clients.nameserver import messages, transfer
from windowbox.clients.nameserver.batches import as_wanted, read_back
from windowbox.clients.nameserver.changes import Delete, Replace
from windowbox.clients.nameserver.ownership import Mark, read_mark
from windowbox.clients.nameserver.tsig import TsigKey
from windowbox.clients.nameserver.zonequeue import ZoneQueue, ZoneStats
from windowbox.errors import Malformed
from windowbox.models.recordsets import RecordKey, RecordSet
from windowbox.settings.dnssettings import DnsSettings, ZoneSettings

_Route = tuple[str, tuple[str, ...], str, str]


class Nameserver:
    """Keeps one connection per zone and key."""

    def __init__(self, settings: DnsSettings) -> None:
        self._settings = settings
        self._keys = {zone.name: TsigKey.from_settings(zone.key) for zone in settings.zones if zone.key}
        self._queues: dict[_Route, ZoneQueue] = {}
        self._listeners: list[_Listener] = []

    async def replace(
        self,
        zone: str,
        wanted: RecordSet,
        *,
        key: TsigKey | None = None,
        owner: str | None = None,
        resource: str = "",
    ) -> None:
        """Make the RRset what is `wanted`, and prove it by reading it back. Idempotent.

        With an `owner`, only if the record is its own or has no owner: see `ownership`. The owner's mark
        names `resource`, the object of the RRset.
        Raises Refused or Malformed if this can never succeed, and a TransientError if it cannot now.
        """
        settings = self._zone(zone)
        change = Replace(wanted.key, messages.rrset(wanted), owner or settings.ownership, resource)
        await self._queue(settings, key).submit(change)

    async def delete(
        self,
        zone: str,
        record: RecordKey,
        *,
        key: TsigKey | None = None,
        owner: str | None = None,
        unless_changed: RecordSet | None = None,
    ) -> None:
        """Delete the RRset, and prove it. Idempotent.

        A record of another owner, or with values other than `unless_changed`, stays.
        """
        settings = self._zone(zone)
        messages.name(record.name)  # Malformed concerns this caller alone, not its batch
        values = messages.rrset(unless_changed) if unless_changed else None
        await self._queue(settings, key).submit(Delete(record, owner or settings.ownership, values))

    async def read(self, zone: str, record: RecordKey, *, key: TsigKey | None = None) -> RecordSet | None:
        """The update server's answer for `record`, which may come from a wildcard."""
        queue = self._queue(self._zone(zone), key)
        query = messages.query(messages.name(record.name), RdataType[record.type])
        [reply] = await queue.ask(lambda connection: connection.exchange([query]))
        return messages.record_set(record, reply)

    async def drifted(self, zone: str, wanted: Sequence[RecordSet]) -> list[RecordKey]:
        """The keys of `wanted` for which the server gives another answer."""
        settings = self._zone(zone)
        queue = self._queue(settings, None)
        different: list[RecordKey] = []
        for start in range(0, len(wanted), settings.max_rrsets):
            part = wanted[start : start + settings.max_rrsets]
            records = [messages.rrset(each) for each in part]
            replies = await queue.ask(partial(read_back, records=records))
            for each, record, reply in zip(part, records, replies, strict=True):
                if not as_wanted(record, reply):
                    different.append(each.key)
        return different

    async def marks(self, zone: str) -> list[Mark]:
        """Our marks in the zone that name an object, by a zone transfer.

        Raises Refused if no server allows it.
        """
        settings = self._zone(zone)
        key, owner = self._keys.get(zone), settings.ownership
        if owner is None:
            return []
        texts = await transfer.texts(settings, key, self._settings.message_timeout)
        return [mark for name, values in texts.items() if (mark := read_mark(name, values, owner))]

    async def reconnected(self) -> AsyncGenerator[str, None]:
        """Zones whose server reconnected, or whose serial decreased: their records may be old, or lost."""
        listener = _Listener()
        self._listeners.append(listener)
        try:
            for zone in self._settings.zones:
                if not zone.key_from_record:
                    self._queue(zone, None).start()
            while True:
                yield await listener.next()
        finally:
            self._listeners.remove(listener)

    def stats(self) -> list[ZoneStats]:
        return [queue.stats() for queue in self._queues.values()]

    async def aclose(self) -> None:
        queues, self._queues = self._queues, {}
        for queue in queues.values():
            await queue.aclose()

    def _zone(self, name: str) -> ZoneSettings:
        zone = self._settings.zone(name)
        if zone is None:
            raise Malformed(f"zone {name} is not configured: add it to the settings")
        return zone

    def _queue(self, zone: ZoneSettings, key: TsigKey | None) -> ZoneQueue:
        own = self._keys.get(zone.name)
        used = key or own
        route = (zone.name, tuple(zone.servers), used.name if used else "", used.fingerprint if used else "")
        queue = self._queues.get(route)
        if queue is None:
            self._queues = {route: queue for route, queue in self._queues.items() if queue.running}
            kept = used == own and not zone.key_from_record
            queue = self._queues[route] = ZoneQueue(zone, used, self._settings, self._announce, kept=kept)
        return queue

    def _announce(self, zone: str) -> None:
        for listener in self._listeners:
            listener.add(zone)


class _Listener:
    """A queue that holds each announced zone once."""

    def __init__(self) -> None:
        self._zones: dict[str, None] = {}
        self._news = asyncio.Event()

    def add(self, zone: str) -> None:
        self._zones[zone] = None
        self._news.set()

    async def next(self) -> str:
        await self._news.wait()
        zone = next(iter(self._zones))
        del self._zones[zone]
        if not self._zones:
            self._news.clear()
        return zone
