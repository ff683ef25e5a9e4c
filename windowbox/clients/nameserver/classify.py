"""Classifies answers of name servers: whose fault, when to retry, and the error to show."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from dns.message import Message
from dns.rcode import Rcode
from dns.rdatatype import RdataType
from dns.rrset import RRset

from windowbox.clients.nameserver import messages
from windowbox.errors import Conflict, Malformed, Refused, TransientError, WindowboxError

PERSON_SOON = ("ERR_RETRYABLE_CONFIGURATION_PROBLEM",)
"""A person has to change something; after that a retry succeeds."""
PERSON = ("ERR_CONFIGURATION_PROBLEM",)
SLOW = 30.0
"""Seconds until the retry of an error that needs a person."""


class Scope(enum.Enum):
    RECORD = "one record, or a few, of the message"
    ZONE = "everything that goes to this zone"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something failed; every waiter gets an error of its own from it."""

    kind: type[WindowboxError]
    text: str
    codes: tuple[str, ...] = ()
    retry_after: float | None = None
    scope: Scope = Scope.RECORD

    def error(self) -> WindowboxError:
        if issubclass(self.kind, TransientError):
            return self.kind(self.text, retry_after=self.retry_after, codes=self.codes)
        return self.kind(self.text, codes=self.codes)


class ZoneFailed(Exception):
    """Nothing that goes to this zone can succeed now. Stays inside this package."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.text)
        self.failure = failure


def zone_wide(text: str) -> Failure:
    return Failure(TransientError, text, PERSON_SOON, SLOW, Scope.ZONE)


def _not_authoritative(server: str, zone: str) -> Failure:
    return zone_wide(f"{server} is not authoritative for zone {zone}: correct the zone or its servers")


def update_failure(rcode: Rcode, server: str, zone: str) -> Failure:
    """The failure behind `rcode`, which is not NOERROR, in the answer of `server` to an update of `zone`."""
    match rcode:
        case Rcode.NOTAUTH:
            return _not_authoritative(server, zone)
        case Rcode.NOTIMP:
            return zone_wide(f"{server} takes no updates of zone {zone}: name the zone's primary server")
        case Rcode.REFUSED:
            text = (
                f"{server} refuses updates of zone {zone}: allow them for this key or address "
                "(allow-update, update-policy), or thaw the zone if it is frozen"
            )
            return Failure(TransientError, text, PERSON_SOON, SLOW)
        case Rcode.SERVFAIL:
            text = (
                f"{server} cannot store a change of zone {zone}: look into its log, "
                "most likely its disk, its journal or a limit of its own is in the way"
            )
            return Failure(TransientError, text)
        case Rcode.NOTZONE:
            text = f"the name is outside zone {zone}: correct spec.name or spec.zone"
            return Failure(Refused, text, PERSON)
        case Rcode.FORMERR:
            text = f"{server} cannot read our message about zone {zone}: report this as a bug"
            return Failure(Malformed, text)
        case Rcode.YXRRSET | Rcode.YXDOMAIN | Rcode.NXRRSET | Rcode.NXDOMAIN:
            return Failure(Conflict, f"somebody else changed the record in zone {zone} at the same time")
        case _:
            said = messages.rcode_text(rcode)
            text = f"{server} answered an update of zone {zone} with {said}: look into its log"
            return Failure(TransientError, text, PERSON_SOON, SLOW)


def zone_failure(reply: Message, server: str, zone: str) -> Failure | None:
    """The failure of the whole zone, judged by an answer to a query for its SOA."""
    match reply.rcode():
        case Rcode.NOERROR if messages.authoritative(reply) and messages.answer(
            reply, messages.name(zone), RdataType.SOA
        ):
            return None
        case Rcode.SERVFAIL:
            return zone_wide(
                f"{server} has not loaded zone {zone}: look into its log, often the journal is out of sync"
            )
        case Rcode.REFUSED | Rcode.NOERROR | Rcode.NXDOMAIN | Rcode.NOTAUTH:
            return _not_authoritative(server, zone)
        case rcode:
            said = messages.rcode_text(rcode)
            return zone_wide(f"{server} answered a query for zone {zone} with {said}: look into its log")


def diagnosis(wanted: RRset, zone: str, reply: Message, soa: Message, everything: Message) -> Failure:
    """Why `reply`, read back after NOERROR, is not what was `wanted`.

    `soa` and `everything` are answers to queries for SOA and ANY at the same name.
    """
    what = f"{messages.name_text(wanted.name)} {RdataType.to_text(wanted.rdtype)}"

    def ignored(because: str, remedy: str) -> Failure:
        return Failure(Refused, f"{what} was ignored: {because}; {remedy}", PERSON_SOON)

    delegated = [messages.name_text(r.name) for r in reply.authority if r.rdtype == RdataType.NS]
    if delegated and not messages.authoritative(reply):
        return ignored(
            f"{delegated[0]} is delegated to other name servers, which are not asked here",
            f"configure the zone {delegated[0]}, or remove its NS records",
        )
    served = [messages.name_text(r.name) for r in soa.answer + soa.authority if r.rdtype == RdataType.SOA]
    if served and served[0] != zone:
        return ignored(
            f"the same server serves the zone {served[0]}, which hides the record in {zone}",
            f"configure the zone {served[0]}, or name it in spec.zone",
        )
    for alias in reply.answer + everything.answer:
        if wanted.rdtype != RdataType.CNAME == alias.rdtype and alias.name == wanted.name:
            target = messages.text(alias[0])
            return ignored(f"a CNAME stands at the name and points to {target}", "delete one of the two")
    others = {RdataType.to_text(r.rdtype) for r in everything.answer if r.name == wanted.name} - {"CNAME"}
    if wanted.rdtype == RdataType.CNAME and others:
        return ignored(
            f"there are {', '.join(sorted(others))} records at the name, which a CNAME cannot join",
            "delete one of the two",
        )
    found = messages.answer(reply, wanted.name, wanted.rdtype)
    if found is not None and found == wanted:
        return ignored(
            f"the server keeps TTL {found.ttl} instead of {wanted.ttl} (max-zone-ttl)",
            f"set spec.ttl to {found.ttl}, or raise the limit",
        )
    return Failure(Conflict, f"{what} was changed by somebody else right after it was written")
