"""The owner of a record, in a TXT record beside it that guards every change.

An owner claims a name and type that has no owner. From then on every change requires its mark as a
prerequisite, so that the server itself rejects other owners, without a race between reading and writing.

A record that exists without a mark is adopted if it has exactly the wanted values, and refused otherwise:
it may be in use.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

import dns.rrset
from dns.message import Message
from dns.rdatatype import RdataType
from dns.rrset import RRset

from windowbox.clients.nameserver import messages
from windowbox.clients.nameserver.changes import Change, Delete, Replace
from windowbox.clients.nameserver.updates import Update
from windowbox.models.recordsets import RecordKey, RecordSet, RecordType

OWNER_TTL = 300
_HERITAGE = "heritage=windowbox,owner="
_RESOURCE = "heritage=windowbox,resource="
_NAME = re.compile(r"_windowbox-(?P<wild>wildcard-)?(?P<type>a|aaaa|cname|txt)\.(?P<name>.+)")


@dataclass(frozen=True, slots=True)
class Held:
    """The record is ours."""

    mark: RRset
    """As it was found."""


@dataclass(frozen=True, slots=True)
class Mark:
    """An owner's mark in the zone."""

    key: RecordKey
    """The record that it belongs to."""
    resource: str
    """The object that the record was written for last."""


@dataclass(frozen=True, slots=True)
class Unclaimed:
    """The record has no owner: it must not exist, so that the claim takes it from no other program."""


@dataclass(frozen=True, slots=True)
class Adoptable:
    """The record has no owner, but exists: it must have exactly the wanted values."""


Claim = Held | Unclaimed | Adoptable


def mark_name(key: RecordKey, zone: str) -> str:
    """The name of the owner's mark of `key`: a separate one, as nothing can stand beside a CNAME."""
    wild = "wildcard-" if key.name.startswith("*.") else ""
    label = f"_windowbox-{wild}{key.type.lower()}"
    name = f"{label}.{key.name.removeprefix('*.')}"
    if len(name) <= 253:
        return name
    return f"{label}-{hashlib.sha256(key.name.encode()).hexdigest()[:24]}.{zone}"


def mark(key: RecordKey, zone: str, owner: str, resource: str = "") -> RecordSet:
    texts = (_HERITAGE + owner, *((_RESOURCE + resource,) if resource else ()))
    return RecordSet(RecordKey(mark_name(key, zone), "TXT"), OWNER_TTL, texts)


def found_mark(reply: Message) -> tuple[str | None, RRset]:
    """The owner in a mark, if there is one, and the mark itself."""
    question = reply.question[0]
    found = messages.answer(reply, question.name, RdataType.TXT)
    if found is None:
        found = dns.rrset.RRset(question.name, question.rdclass, RdataType.TXT)
    return _after(_HERITAGE, map(messages.text, found)), found


def read_mark(name: str, texts: Iterable[str], owner: str) -> Mark | None:
    """The mark in a TXT record set, if it is of this owner, and has the record's name and its object."""
    match, resource = _NAME.fullmatch(name), _after(_RESOURCE, texts)
    if match is None or not resource or _after(_HERITAGE, texts) != owner:
        return None
    record_type: RecordType = match["type"].upper()  # type: ignore[assignment]
    return Mark(RecordKey(("*." if match["wild"] else "") + match["name"], record_type), resource)


def _after(prefix: str, texts: Iterable[str]) -> str | None:
    return next((text.removeprefix(prefix) for text in texts if text.startswith(prefix)), None)


def guard(update: Update, change: Change, claim: Claim | None, zone: str) -> None:
    """Add the prerequisites of `change` to the update."""
    if claim is None:
        return
    name, number, marked = change.key.name, RdataType[change.key.type], mark_name(change.key, zone)
    match change, claim:
        case _, Held(found):
            update.present(marked, RdataType.TXT, [rdata.to_wire() or b"" for rdata in found])
        case _, Unclaimed():
            update.absent(name, number)
            update.absent(marked, RdataType.TXT)
        case Replace(wanted=wanted), Adoptable():
            update.present(name, number, messages.values(wanted))
            update.absent(marked, RdataType.TXT)


def write(update: Update, change: Change, zone: str) -> None:
    """Add what `change` writes to the update, the mark included."""
    match change:
        case Replace(wanted=wanted):
            # One transaction: readers see the old set or the new one, never none.
            update.replace(wanted)
            if change.owner:
                update.replace(mark(change.key, zone, change.owner, change.resource))
        case Delete(key=key):
            update.delete(key.name, RdataType[key.type])
            if change.owner:
                update.delete(mark_name(key, zone), RdataType.TXT)
