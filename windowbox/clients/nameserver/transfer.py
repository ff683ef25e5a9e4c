"""Zone transfers (AXFR), each over a connection of its own."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

from dns.rcode import Rcode
from dns.rdatatype import RdataType

from windowbox.clients.nameserver import messages
from windowbox.clients.nameserver.classify import PERSON_SOON, ZoneFailed
from windowbox.clients.nameserver.connection import CONNECT_TIMEOUT
from windowbox.clients.nameserver.tsig import TsigKey, unsigned, verified
from windowbox.errors import Refused, TransientError, Unreachable
from windowbox.settings.dnssettings import ZoneSettings, split_server

_MOST_OCTETS = 256 << 20
_LONGEST = 120.0
_REFUSALS = {Rcode.FORMERR, Rcode.NOTIMP, Rcode.REFUSED, Rcode.NOTAUTH}

Texts = dict[str, list[str]]


async def texts(zone: ZoneSettings, key: TsigKey | None, timeout: float) -> Texts:
    """The values of all TXT records in the zone, by name.

    Raises Refused if a server allows no transfer, Unreachable if none answers.
    """
    problem = Unreachable(f"zone {zone.name} has no server")
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
    raise problem


async def _texts(server: str, zone: str, key: TsigKey | None, timeout: float) -> Texts:
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
