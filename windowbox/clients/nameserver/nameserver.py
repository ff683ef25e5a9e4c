"""Change and read DNS records on the servers of the configured zones."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import Any

from dns.rcode import Rcode
from dns.rdatatype import RdataType

from windowbox.clients.nameserver import messages
from windowbox.clients.nameserver.batches import read_back
from windowbox.clients.nameserver.changes import Delete, Replace
from windowbox.clients.nameserver.classify import PERSON_SOON, ZoneFailed
from windowbox.clients.nameserver.connection import CONNECT_TIMEOUT
from windowbox.clients.nameserver.ownership import Mark, read_mark
from windowbox.clients.nameserver.tsig import TsigKey, unsigned, verified
from windowbox.clients.nameserver.zonequeue import ZoneQueue, ZoneStats
from windowbox.errors import Malformed, Refused, TransientError, Unreachable
from windowbox.models.recordsets import RecordKey, RecordSet
from windowbox.settings.dnssettings import DnsSettings, ZoneSettings, split_server

_Route = tuple[str, tuple[str, ...], str, str]


class Nameserver:
    """Keeps one connection per zone and key."""

    def __init__(self, settings: DnsSettings) -> None:
        self._settings = settings
        self._keys = {zone.name: TsigKey.from_settings(zone.key) for zone in settings.zones if zone.key}
        self._queues: dict[_Route, ZoneQueue] = {}
        self._listeners: list[_Listener] = []

    def zone_around(self, name: str) -> str:
        """The smallest zone around the name that has a key of its own; empty if there is none."""
        zones = [one.name for one in self._settings.zones if not one.key_from_record]
        return max((zone for zone in zones if f".{name}".endswith(f".{zone}")), key=len, default="")

    async def replace(
        self, zone: str, wanted: RecordSet, *, key: TsigKey | None = None, resource: str = ""
    ) -> None:
        """Make the RRset what is `wanted`, and prove it by reading it back. Idempotent.

        In a zone with `ownership`, only if the record is ours or has no owner: see `ownership`. The mark
        names `resource`, the object of the RRset.
        Raises Refused or Malformed if this can never succeed, and a TransientError if it cannot now.
        """
        settings = self._zone(zone)
        messages.check(wanted)  # Malformed concerns this caller alone, not its batch
        await self._queue(settings, key).submit(Replace(wanted, settings.ownership, resource))

    async def delete(self, zone: str, record: RecordKey, *, key: TsigKey | None = None) -> None:
        """Delete the RRset, and prove it. Idempotent. A record of another owner stays."""
        settings = self._zone(zone)
        messages.name(record.name)  # as above
        await self._queue(settings, key).submit(Delete(record, settings.ownership))

    async def read(self, zone: str, record: RecordKey) -> RecordSet | None:
        """The update server's answer for `record`, which may come from a wildcard."""
        queue = self._queue(self._zone(zone), None)
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
            for each in part:
                messages.check(each)
            replies = await queue.ask(partial(read_back, records=part))
            different += [each.key for each, reply in zip(part, replies, strict=True) if reply is not None]
        return different

    async def marks(self, zone: str) -> list[Mark]:
        """Our marks in the zone that name an object, by a zone transfer.

        Raises Refused if no server allows it.
        """
        settings = self._zone(zone)
        key, owner = self._keys.get(zone), settings.ownership
        if owner is None:
            return []
        texts = await zone_texts(settings, key, self._settings.message_timeout)
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


_MOST_OCTETS, _LONGEST = 256 << 20, 120.0
"""Octets and seconds of a zone transfer at most."""
_REFUSALS = {Rcode.FORMERR, Rcode.NOTIMP, Rcode.REFUSED, Rcode.NOTAUTH}

Texts = dict[str, list[str]]


async def zone_texts(zone: ZoneSettings, key: TsigKey | None, timeout: float) -> Texts:
    """The values of all TXT records in the zone, by name, by a zone transfer (AXFR) over a new connection.

    Raises Refused if a server allows no transfer, Unreachable if none answers.
    """
    problem = Unreachable(f"zone {zone.name} has no server")
    for server in zone.servers:
        try:
            async with asyncio.timeout(_LONGEST):
                return await _transferred(server, zone.name, key, timeout)
        except Unreachable as error:
            problem = error
        except TimeoutError:
            problem = Unreachable(f"{server} takes more than {_LONGEST:g} s to transfer zone {zone.name}")
        except ZoneFailed as failed:
            raise failed.failure.error() from failed
    raise problem


async def _transferred(server: str, zone: str, key: TsigKey | None, timeout: float) -> Texts:
    request = messages.query(messages.name(zone), RdataType.AXFR)
    if key:
        request.use_tsig(key.ring)
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            reader, writer = await asyncio.open_connection(*split_server(server))
    except (OSError, TimeoutError) as error:
        raise Unreachable(f"cannot connect to {server}: {error or 'no answer'}") from error
    found: Texts = defaultdict(list)
    octets = ends = 0
    context: Any = None
    try:
        writer.write(request.to_wire(prepend_length=True))
        while octets < _MOST_OCTETS:
            async with asyncio.timeout(timeout):
                wire = await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big"))
            octets += len(wire)
            reply = verified(wire, request, key, server, context)
            context = reply.tsig_ctx
            if reply.id != request.id:
                raise Unreachable(f"{server} sent a reply that matches no request")
            if reply.rcode() in _REFUSALS:
                remedy = "allow it for this key or address (allow-transfer)"
                raise Refused(f"{server} allows no transfer of zone {zone}: {remedy}", codes=PERSON_SOON)
            if reply.rcode() or not reply.answer:
                said = messages.rcode_text(reply.rcode())
                raise TransientError(f"{server} answered a transfer of zone {zone} with {said}")
            for rrset in reply.answer:
                # The zone's SOA is its first record, and its last.
                ends += rrset.rdtype == RdataType.SOA
                if rrset.rdtype == RdataType.TXT:
                    found[messages.name_text(rrset.name)] += [messages.text(rdata) for rdata in rrset]
            if ends > 1:
                if key and not reply.had_tsig:  # no signature covers the messages since the last one
                    raise ZoneFailed(unsigned(key, server))
                return found
            await asyncio.sleep(0)  # other tasks run between messages that have already arrived
    except (asyncio.IncompleteReadError, TimeoutError) as error:
        raise Unreachable(f"{server} stopped in the middle of an answer") from error
    except OSError as error:
        raise Unreachable(f"{server} sent an unreadable reply: {error}") from error
    finally:
        writer.transport.abort()
    raise Refused(f"zone {zone} is larger than {_MOST_OCTETS >> 20} MiB: too large to be searched")
