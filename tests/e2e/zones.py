"""A client of a name server, besides windowbox."""

from __future__ import annotations

import base64
import time

import dns.message
import dns.query
import dns.rcode
import dns.rdatatype
import dns.rrset
import dns.tsig
import dns.update
import dns.zone

from tests.support.servers import NameServer


def answers(server: NameServer, name: str, record_type: str = "A") -> list[str]:
    """The sorted values that `server` answers."""
    return sorted(str(value) for answer in _asked(server, name, record_type) for value in answer)


def ttl(server: NameServer, name: str, record_type: str = "A") -> int:
    return int(_asked(server, name, record_type)[0].ttl)


def _asked(server: NameServer, name: str, record_type: str) -> list[dns.rrset.RRset]:
    query = dns.message.make_query(name, record_type)
    return dns.query.tcp(query, server.host, port=server.port, timeout=60).answer


def transferred(server: NameServer) -> dict[str, set[str]]:
    """All names of the zone, relative to it, with their record types."""
    zone = dns.zone.Zone(server.zone)
    dns.query.inbound_xfr(server.host, zone, port=server.port, timeout=60)
    found: dict[str, set[str]] = {}
    for name, _, record in zone.iterate_rdatas():
        found.setdefault(str(name), set()).add(dns.rdatatype.to_text(record.rdtype))
    return found


def remove(server: NameServer, name: str, record_type: str = "A") -> None:
    """Remove a record by hand."""
    update = _update(server)
    update.delete(f"{name}.", record_type)
    _send(server, update)


def replace(server: NameServer, name: str, record_type: str, value: str) -> None:
    """Change a record by hand."""
    update = _update(server)
    update.replace(f"{name}.", 60, record_type, value)
    _send(server, update)


def _update(server: NameServer) -> dns.update.UpdateMessage:
    key = server.key
    if key is None:
        return dns.update.UpdateMessage(server.zone)
    secret = base64.b64decode(key.secret)
    return dns.update.UpdateMessage(server.zone, keyring=dns.tsig.Key(key.name, secret, key.algorithm))


def _send(server: NameServer, update: dns.update.UpdateMessage) -> None:
    reply = dns.query.tcp(update, server.host, port=server.port, timeout=60)
    assert reply.rcode() == dns.rcode.NOERROR


def until(server: NameServer, name: str, values: list[str], record_type: str = "A") -> None:
    """Wait until the server answers `values`."""
    limit = time.monotonic() + 60
    while (found := answers(server, name, record_type)) != values:
        assert time.monotonic() < limit, f"{name} stays {found}"
        time.sleep(0.05)  # no event says that a zone has changed
