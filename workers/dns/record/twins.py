"""Whether another DNSRecord asks for the same name: one worker, by lease, follows all, and the others ask it.

Were each to follow them itself, the CPU for one record would grow with the number of workers.
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
"""Held by the worker that answers. Earlier versions do not answer, and hold `drift.dnsrecord`."""

PATIENCE = 1.0
"""Seconds for an answer. A last attempt to delete a name takes longer: without one, it has not succeeded."""

_AGAIN = 0.5

_BESIDE = "beside "
"""Before the type, a question about other types. Earlier versions answer that no DNSRecord has this type."""


class Twins(Protocol):
    """Who knows all DNSRecords, or knows whom to ask."""

    async def find(self, ref: ObjectRef, zone: str, record: RecordKey) -> ObjectRef | None:
        """Another DNSRecord that asks for the same name and type, in the same zone."""

    async def displaced(self, ref: ObjectRef, zone: str, record: RecordKey) -> list[ObjectRef]:
        """Other DNSRecords that ask for what cannot stand beside `record`."""


class SharedTwins:
    """Twins that one worker of all finds, for itself and for the others."""

    def __init__(self, bus: Bus, claims: Claims) -> None:
        self._bus = bus
        self._claims = claims
        self._here = False

    async def answer(self) -> None:
        """Answer for all workers, for ever. For the holder of the lease, who follows the claims."""
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
