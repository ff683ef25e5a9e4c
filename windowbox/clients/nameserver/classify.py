"""Classifies responses of name servers: whose fault, when to retry, and the error to show."""

from __future__ import annotations

import enum
from dataclasses import dataclass

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


def update_failure(rcode: int, server: str, zone: str) -> Failure:
    """What it means that `server` answered an update of `zone` with `rcode`, which is not NOERROR."""
    match rcode:
        case messages.NOTAUTH:
            return _zone(f"{server} is not authoritative for zone {zone}: correct the zone or its servers")
        case messages.NOTIMP:
            return _zone(f"{server} takes no updates of zone {zone}: name the zone's primary server")
        case messages.REFUSED:
            return _slow(
                f"{server} refuses updates of zone {zone}: allow them for this key or address "
                "(allow-update, update-policy), or thaw the zone if it is frozen"
            )
        case messages.SERVFAIL:
            return Failure(
                TransientError,
                f"{server} cannot store a change of zone {zone}: look into its log, "
                "most likely its disk, its journal or a limit of its own is in the way",
            )
        case messages.NOTZONE:
            return Failure(
                Refused, f"the name is outside zone {zone}: correct spec.name or spec.zone", PERSON
            )
        case messages.FORMERR:
            return Failure(
                Malformed, f"{server} cannot read our message about zone {zone}: report this as a bug"
            )
        case messages.YXRRSET | messages.YXDOMAIN | messages.NXRRSET | messages.NXDOMAIN:
            return Failure(Conflict, f"somebody else changed the record in zone {zone} at the same time")
        case _:
            return _slow(
                f"{server} answered an update of zone {zone} with {rcode_text(rcode)}: look into its log"
            )


def zone_failure(reply: messages.Reply, server: str, zone: str) -> Failure | None:
    """What is wrong with the zone as a whole, judged by an answer to a query for its SOA."""
    match reply.rcode:
        case messages.NOERROR if reply.authoritative and _has_soa(reply, zone):
            return None
        case messages.SERVFAIL:
            return _zone(
                f"{server} has not loaded zone {zone}: look into its log, often the journal is out of sync"
            )
        case messages.REFUSED | messages.NOERROR | messages.NXDOMAIN | messages.NOTAUTH:
            return _zone(f"{server} is not authoritative for zone {zone}: correct the zone or its servers")
        case rcode:
            return _zone(
                f"{server} answered a query for zone {zone} with {rcode_text(rcode)}: look into its log"
            )


def _has_soa(reply: messages.Reply, zone: str) -> bool:
    return bool(reply.values(messages.pack_name(zone), messages.SOA)[0])


def rcode_text(rcode: int) -> str:
    return messages.RCODES[rcode] if rcode < len(messages.RCODES) else f"RCODE{rcode}"


def _zone(text: str) -> Failure:
    return Failure(TransientError, text, PERSON_SOON, SLOW, Scope.ZONE)


def _slow(text: str) -> Failure:
    return Failure(TransientError, text, PERSON_SOON, SLOW)


def ignored(name: str, record_type: str, *, because: str, remedy: str) -> Failure:
    """A change that the server accepted and did not make."""
    return Failure(Refused, f"{name} {record_type} was ignored: {because}; {remedy}", PERSON_SOON)


def diagnosis(
    wanted: messages.Packed,
    name: str,
    zone: str,
    reply: messages.Reply,
    soa: messages.Reply,
    everything: messages.Reply,
) -> Failure:
    """Why `reply`, read back after NOERROR, is not what was `wanted`.

    `soa` and `everything` are answers to queries for SOA and ANY at the same name.
    """
    record_type = messages.NAMES[wanted.type]
    delegated = [r.owner for r in reply.authority if r.type == messages.NS]
    if not reply.authoritative and delegated:
        at = messages.name_text(delegated[0])
        return ignored(
            name, record_type,
            because=f"{at} is delegated to other name servers, which nobody asks here",
            remedy=f"configure the zone {at}, or remove its NS records",
        )  # fmt: skip
    served = [messages.name_text(r.owner) for r in soa.answers + soa.authority if r.type == messages.SOA]
    if served and served[0] != zone:
        return ignored(
            name, record_type,
            because=f"the same server serves the zone {served[0]}, which hides the record in {zone}",
            remedy=f"configure the zone {served[0]}, or name it in spec.zone",
        )  # fmt: skip
    return _displaced(wanted, name, reply, everything)


def _displaced(
    wanted: messages.Packed, name: str, reply: messages.Reply, everything: messages.Reply
) -> Failure:
    full = wanted.name
    record_type = messages.NAMES[wanted.type]
    aliases = [r for r in reply.answers + everything.answers if r.owner == full and r.type == messages.CNAME]
    if aliases and wanted.type != messages.CNAME:
        return ignored(
            name, record_type,
            because=f"a CNAME stands at the name and points to {messages.name_text(aliases[0].rdata)}",
            remedy="delete one of the two",
        )  # fmt: skip
    others = {messages.NAMES.get(r.type, f"TYPE{r.type}") for r in everything.answers if r.owner == full}
    if wanted.type == messages.CNAME and others - {"CNAME"}:
        return ignored(
            name, record_type,
            because=f"there are {', '.join(sorted(others))} records at the name, which a CNAME cannot join",
            remedy="delete one of the two",
        )  # fmt: skip
    found, ttl = reply.values(full, wanted.type)
    if found == set(wanted.rdatas):
        return ignored(
            name, record_type,
            because=f"the server keeps TTL {ttl} instead of {wanted.ttl} (max-zone-ttl)",
            remedy=f"set spec.ttl to {ttl}, or raise the limit",
        )  # fmt: skip
    return Failure(Conflict, f"{name} {record_type} was changed by somebody else right after it was written")
