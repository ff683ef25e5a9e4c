"""Zone transfers (AXFR): all that a zone holds, read over a connection of its own."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from windowbox.clients.nameserver import classify, connection, messages
from windowbox.clients.nameserver.classify import PERSON_SOON, ZoneFailed
from windowbox.clients.nameserver.messages import Reply
from windowbox.clients.nameserver.signing import Signer, TsigKey
from windowbox.errors import Refused, TransientError, Unreachable
from windowbox.settings.dnssettings import ZoneSettings, split_server

_MOST_OCTETS = 256 << 20
_LONGEST = 120.0
_REFUSALS = {messages.FORMERR, messages.NOTIMP, messages.REFUSED, messages.NOTAUTH}

Texts = dict[str, list[bytes]]


async def texts(zone: ZoneSettings, key: TsigKey | None, timeout: float) -> Texts:
    """The values of all TXT records in the zone, by name.

    Raises Refused if a server allows no transfer, Unreachable if none answers.
    """
    problem: Unreachable | None = None
    for server in zone.servers:
        try:
            async with asyncio.timeout(_LONGEST):
                return await _texts(server, zone.name, key, timeout)
        except Unreachable as error:
            problem = error
        except TimeoutError:
            problem = Unreachable(f"{server} takes more than {_LONGEST:g} s to transfer zone {zone.name}")
        except ZoneFailed as failed:
            raise failed.failure.error() from failed
    raise problem or Unreachable(f"zone {zone.name} has no server")


async def _texts(server: str, zone: str, key: TsigKey | None, timeout: float) -> Texts:
    found: Texts = defaultdict(list)
    ends = 0
    async with contextlib.aclosing(_replies(server, zone, key, timeout)) as replies:
        async for reply in replies:
            _check(reply, server, zone)
            for record in reply.answers:
                ends += record.type == messages.SOA
                if record.type == messages.TXT:
                    found[messages.name_text(record.owner)].append(record.rdata)
            if ends > 1:  # the zone's SOA is its first record, and its last
                return found
    raise Refused(f"zone {zone} is larger than {_MOST_OCTETS >> 20} MiB: too large to be searched")


def _check(reply: Reply, server: str, zone: str) -> None:
    if reply.rcode in _REFUSALS:
        raise Refused(
            f"{server} allows no transfer of zone {zone}: allow it for this key or address (allow-transfer)",
            codes=PERSON_SOON,
        )
    if reply.rcode or not reply.answers:
        said = classify.rcode_text(reply.rcode)
        raise TransientError(f"{server} answered a transfer of zone {zone} with {said}")


async def _replies(server: str, zone: str, key: TsigKey | None, timeout: float) -> AsyncGenerator[Reply]:
    """The messages of the answer, their signatures checked."""
    signer = Signer(key, server) if key else None
    number = random.randrange(1 << 16).to_bytes(2, "big")
    request, code = number + messages.query(messages.pack_name(zone), messages.AXFR)[2:], b""
    if signer:
        request, code = signer.sign(request)
    async with _opened(server) as (reader, writer):
        writer.write(len(request).to_bytes(2, "big") + request)
        octets, before = 0, None
        while octets < _MOST_OCTETS:
            wire = await _message(reader, server, timeout)
            octets += len(wire)
            if wire[:2] != number:
                raise Unreachable(f"{server} answers what nobody asked")
            before = _checked(signer, wire, code, before)
            yield messages.parsed(wire)
            await asyncio.sleep(0)  # what has arrived already would be read in one go


def _checked(signer: Signer | None, wire: bytes, code: bytes, before: Any) -> Any:
    if signer is None:
        return None
    if wire[3] & 0xF:
        signer.verify(wire, code)  # a refusal may come unsigned
        return before
    return signer.verify_next(wire, code, before)


@contextlib.asynccontextmanager
async def _opened(server: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    try:
        async with asyncio.timeout(connection.CONNECT_TIMEOUT):
            reader, writer = await asyncio.open_connection(*split_server(server))
    except (OSError, TimeoutError) as error:
        raise Unreachable(f"cannot connect to {server}: {error or 'no answer'}") from error
    try:
        yield reader, writer
    except (OSError, ValueError) as error:
        raise Unreachable(f"{server} answers what nobody can read: {error}") from error
    finally:
        writer.transport.abort()


async def _message(reader: asyncio.StreamReader, server: str, timeout: float) -> bytes:
    try:
        async with asyncio.timeout(timeout):
            length = int.from_bytes(await reader.readexactly(2), "big")
            wire = await reader.readexactly(length)
    except (asyncio.IncompleteReadError, TimeoutError) as error:
        raise Unreachable(f"{server} stopped in the middle of an answer") from error
    if length < 12:
        raise Unreachable(f"{server} answers what nobody can read")
    return wire
