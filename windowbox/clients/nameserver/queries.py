"""Addresses of a name, asked of one name server over UDP."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import dns.exception
import dns.query
from dns.rcode import Rcode
from dns.rdatatype import RdataType

from windowbox.clients.nameserver import messages
from windowbox.errors import Malformed, Refused, Unreachable

_TIMEOUT = 3.0


def addresses(host: str, port: int, name: str, where: str, zone: str) -> set[IPv4Address | IPv6Address]:
    """All addresses of `name`. Errors call the server `where`."""
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
