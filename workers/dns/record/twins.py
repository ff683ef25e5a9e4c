"""Twins: DNSRecords that ask for the same name. One worker, by lease, follows all of them for the others.

If each worker followed them, the CPU for one record would grow with the number of workers.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

import orjson

from bus import queries, subjects
from bus.transport.connection import Bus
from windowbox.errors import NotListed, Unreachable, WindowboxError
from windowbox.models.recordsets import RecordKey
from windowbox.models.refs import ObjectRef
from workers.dns.record.claims import Claims

logger = logging.getLogger(__name__)

LEASE = "twins.dnsrecord"
"""The lease of the worker that answers. Earlier versions hold `drift.dnsrecord`, and do not answer."""

PATIENCE = 1.0
"""Seconds for an answer. The last attempt to delete a name takes longer, as it needs one."""

_AGAIN = 0.5

_BESIDE = "beside "
"""Before the type, asks about other types at the name. Earlier versions find no DNSRecord of such a type."""


class Twins(Protocol):
    """Finds DNSRecords by the names that they ask for."""

    async def find(self, ref: ObjectRef, zone: str, record: RecordKey) -> ObjectRef | None:
        """Another DNSRecord that asks for the same name and type, in the same zone."""

    async def displaced(self, ref: ObjectRef, zone: str, record: RecordKey) -> list[ObjectRef]:
        """Other DNSRecords that ask for types which cannot coexist with `record`."""


class SharedTwins:
    """Asks the worker that follows all DNSRecords, which may be this one."""

    def __init__(self, bus: Bus, claims: Claims) -> None:
        self._bus = bus
        self._claims = claims
        self._here = False

    async def answer(self) -> None:
        """Answer for all workers, for ever. Only the holder of the lease calls this."""
        await self._claims.complete()
        self._here = True
        try:
            while True:
                try:
                    async with queries.answering(self._bus, queries.TWINS, self._answer):
                        await asyncio.Event().wait()
                except WindowboxError as error:
                    logger.info("queries about twins of DNSRecords are not answered: %s", error)
                    await asyncio.sleep(_AGAIN)
        finally:
            self._here = False

    async def find(self, ref: ObjectRef, zone: str, record: RecordKey) -> ObjectRef | None:
        if self._here:
            return await self._claims.find(ref, zone, record)
        found = await self._ask(ref, zone, record.name, record.type)
        return subjects.ref(found) if found else None

    async def displaced(self, ref: ObjectRef, zone: str, record: RecordKey) -> list[ObjectRef]:
        if self._here:
            return await self._claims.displaced(ref, zone, record)
        found = await self._ask(ref, zone, record.name, _BESIDE + record.type)
        return [subjects.ref(key) for key in found.split()]

    async def _ask(self, ref: ObjectRef, zone: str, name: str, type: str) -> str:
        question = orjson.dumps([subjects.key(ref), zone, name, type])
        try:
            answer = await queries.ask(self._bus, queries.TWINS, question, PATIENCE)
        except Unreachable as error:
            raise NotListed(str(error), retry_after=_AGAIN) from error
        if answer is None:
            raise NotListed("no worker follows all DNSRecords just now", retry_after=_AGAIN)
        return answer.decode()

    async def _answer(self, question: bytes) -> bytes:
        key, zone, name, type = orjson.loads(question)
        ref, record = subjects.ref(key), RecordKey(name, type.removeprefix(_BESIDE))
        if type.startswith(_BESIDE):
            displaced = await self._claims.displaced(ref, zone, record)
            return " ".join(map(subjects.key, displaced)).encode()
        twin = await self._claims.find(ref, zone, record)
        return subjects.key(twin).encode() if twin else b""
