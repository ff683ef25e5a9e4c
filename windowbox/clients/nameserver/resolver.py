"""Checks whether this host's resolver answers what was written. It is informative only."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address

import aiodns
import pycares
from dns.rcode import Rcode
from dns.rdatatype import RdataType

from windowbox.clients.nameserver import messages
from windowbox.errors import Malformed, Refused, Unreachable
from windowbox.models.recordsets import RecordSet

TIMEOUT = 2.0


async def ask_resolver(
    wanted: RecordSet, *, servers: Sequence[str] = (), port: int = 53, timeout: float = TIMEOUT
) -> str:
    """Ask the host's resolver, or `servers`, about `wanted`. Never raises: the sentence tells of errors."""
    # A resolver object caches answers, empty ones for up to an hour, and its cache cannot be disabled.
    # So each question gets a new object: https://github.com/c-ares/c-ares/issues/1293
    what = f"{wanted.key.name} {wanted.key.type}"
    try:
        async with aiodns.DNSResolver(
            nameservers=list(servers) or None,
            timeout=timeout,
            tries=2,
            udp_port=port,
            tcp_port=port,
            flags=pycares.ARES_FLAG_NOSEARCH,
        ) as resolver:
            answer = await resolver.query_dns(wanted.key.name + ".", wanted.key.type)
    except aiodns.error.DNSError as error:
        return f"this host's resolver does not answer for {what}: {error.args[-1]}"
    found = {text for record in answer.answer if (text := _text(record.data)) is not None}
    if found == set(wanted.values):
        return f"this host's resolver answers for {what} as wanted"
    shown = ", ".join(sorted(found)[:5]) or "nothing"
    return f"this host's resolver still answers {shown} for {what}"


def _text(data: object) -> str | None:
    match data:
        case pycares.ARecordData(addr=address) | pycares.AAAARecordData(addr=address):
            return str(ip_address(address))
        case pycares.CNAMERecordData(cname=target):
            return target.lower().removesuffix(".")
        case pycares.TXTRecordData(data=octets):
            return octets.decode("utf-8", "surrogateescape")
        case _:
            return None


_TIMEOUT = 3.0


def addresses(host: str, port: int, name: str, where: str, zone: str) -> set[IPv4Address | IPv6Address]:
    """All addresses of `name`. Errors call the server `where`."""
    # Half a MB of memory, which no process of a deployment needs.
    import dns.exception
    import dns.query

    found: set[IPv4Address | IPv6Address] = set()
    for number in (RdataType.A, RdataType.AAAA):
        query = messages.query(messages.name(name), number)
        try:
            reply = dns.query.udp(query, host, _TIMEOUT, port)
        except (OSError, dns.exception.Timeout) as error:
            raise Unreachable(f"{where} does not answer: is it running?") from error
        except (dns.exception.DNSException, ValueError) as error:
            raise Malformed(f"{where} speaks something else than DNS") from error
        if reply.rcode() not in (Rcode.NOERROR, Rcode.NXDOMAIN):
            refusal = messages.rcode_text(reply.rcode())
            raise Refused(f"{where} answers {refusal} for {name}: is it in the zone {zone}?")
        for rrset in reply.answer:
            if rrset.rdtype == number:
                found.update(ip_address(messages.text(rdata)) for rdata in rrset)
    return found
