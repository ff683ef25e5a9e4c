"""The owner of a record, in a TXT record beside it that guards every change.

An owner claims a name and type that nobody holds, and from then on every change names the owner as its
condition, so that the server itself keeps others out, without a moment between looking and writing.

What was there before anybody claimed it is adopted if it is exactly what is wanted, and refused otherwise:
somebody else may need it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from windowbox.clients.nameserver import messages
from windowbox.clients.nameserver.changes import Change, Delete, Replace
from windowbox.clients.nameserver.messages import Packed, Reply, Update
from windowbox.models.recordsets import RecordKey

OWNER_TTL = 300
_HERITAGE = "heritage=windowbox,owner="


@dataclass(frozen=True, slots=True)
class Held:
    """Held by us, or by the owner that hands it over."""

    owner: str


@dataclass(frozen=True, slots=True)
class Unclaimed:
    """Without an owner: it must not exist, so that the claim takes it from no one."""


@dataclass(frozen=True, slots=True)
class Adoptable:
    """Without an owner, but there: it must be exactly what is wanted."""


Claim = Held | Unclaimed | Adoptable


def mark_name(key: RecordKey, zone: str) -> str:
    """The name of the owner's mark of `key`: its own, so that it can stand beside a CNAME."""
    wild = "wildcard-" if key.name.startswith("*.") else ""
    label = f"_windowbox-{wild}{key.type.lower()}"
    name = f"{label}.{key.name.removeprefix('*.')}"
    if len(name) <= 253:
        return name
    return f"{label}-{hashlib.sha256(key.name.encode()).hexdigest()[:24]}.{zone}"


def mark(key: RecordKey, zone: str, owner: str) -> Packed:
    text = messages.text_rdata(_HERITAGE + owner)
    name = mark_name(key, zone)
    return Packed(messages.pack_name(name), messages.owner(name, zone), messages.TXT, OWNER_TTL, (text,))


def owner_found(reply: Reply) -> str | None:
    """The owner that a mark names, if there is one."""
    texts = (messages.text_of(record.rdata) for record in reply.answers if record.type == messages.TXT)
    return next((text.removeprefix(_HERITAGE) for text in texts if text.startswith(_HERITAGE)), None)


def guard(update: Update, change: Change, claim: Claim | None, zone: str) -> None:
    """Add the prerequisites of `change` to the update."""
    record = change.record
    match change, claim:
        case Delete(unless_changed=values), None if values:
            update.guard_present(record.owner, record.type, values)
        case _, None:
            pass
        case _, Held(owner):
            held = mark(change.key, zone, owner)
            update.guard_present(held.owner, held.type, held.rdatas)
        case _, Unclaimed():
            update.guard_absent(record.owner, record.type)
            _guard_unmarked(update, change, zone)
        case Replace(), Adoptable():
            update.guard_present(record.owner, record.type, record.rdatas)
            _guard_unmarked(update, change, zone)
        case Delete(unless_changed=values), Adoptable():
            update.guard_present(record.owner, record.type, values)
            _guard_unmarked(update, change, zone)


def write(update: Update, change: Change, zone: str) -> None:
    """Add what `change` writes to the update, the mark included."""
    match change:
        case Replace(owner=None):
            update.replace(change.record)
        case Replace(owner=str(owner)):
            update.replace(change.record)
            update.replace(mark(change.key, zone, owner))
        case Delete():
            update.delete(change.record.owner, change.record.type)
            if change.owner:
                update.delete(messages.owner(mark_name(change.key, zone), zone), messages.TXT)


def _guard_unmarked(update: Update, change: Change, zone: str) -> None:
    update.guard_absent(messages.owner(mark_name(change.key, zone), zone), messages.TXT)
