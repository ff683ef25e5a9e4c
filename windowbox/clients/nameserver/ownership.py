"""The owner of a record, in a TXT record beside it that guards every change.

An owner claims a name and type that nobody holds, and from then on every change names the owner as its
condition, so that the server itself keeps others out, without a moment between looking and writing.

What was there before anybody claimed it is adopted if it is exactly what is wanted, and refused otherwise:
somebody else may need it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from windowbox.clients.nameserver import messages
from windowbox.clients.nameserver.changes import Change, Delete, Replace
from windowbox.clients.nameserver.messages import Packed, Reply, Update
from windowbox.models.recordsets import RecordKey, RecordType

OWNER_TTL = 300
_HERITAGE = "heritage=windowbox,owner="
_RESOURCE = "heritage=windowbox,resource="
_NAME = re.compile(r"_windowbox-(?P<wild>wildcard-)?(?P<type>a|aaaa|cname|txt)\.(?P<name>.+)")


@dataclass(frozen=True, slots=True)
class Held:
    """Held by us, or by the owner that hands it over."""

    values: tuple[bytes, ...]
    """Those of the mark, as they were found."""


@dataclass(frozen=True, slots=True)
class Mark:
    """An owner's mark, as it stands in the zone."""

    key: RecordKey
    """The record that it belongs to."""
    resource: str
    """The object that the record was written for last."""


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


def mark(key: RecordKey, zone: str, owner: str, resource: str = "") -> Packed:
    texts = [_HERITAGE + owner, *([_RESOURCE + resource] if resource else [])]
    values = tuple(messages.text_rdata(text) for text in texts)
    name = mark_name(key, zone)
    return Packed(messages.pack_name(name), messages.owner(name, zone), messages.TXT, OWNER_TTL, values)


def owner_found(reply: Reply) -> str | None:
    """The owner that a mark names, if there is one."""
    return _said(_HERITAGE, mark_values(reply))


def mark_values(reply: Reply) -> tuple[bytes, ...]:
    return tuple(record.rdata for record in reply.answers if record.type == messages.TXT)


def read_mark(name: str, values: Sequence[bytes], owner: str) -> Mark | None:
    """What a TXT record set says, if it is a mark of this owner that names the record and its object."""
    match, resource = _NAME.fullmatch(name), _said(_RESOURCE, values)
    if match is None or not resource or _said(_HERITAGE, values) != owner:
        return None
    record_type: RecordType = match["type"].upper()  # type: ignore[assignment]
    return Mark(RecordKey(("*." if match["wild"] else "") + match["name"], record_type), resource)


def _said(what: str, values: Sequence[bytes]) -> str | None:
    texts = map(messages.text_of, values)
    return next((text.removeprefix(what) for text in texts if text.startswith(what)), None)


def guard(update: Update, change: Change, claim: Claim | None, zone: str) -> None:
    """Add the prerequisites of `change` to the update."""
    record = change.record
    match change, claim:
        case Delete(unless_changed=values), None if values:
            update.guard_present(record.owner, record.type, values)
        case _, None:
            pass
        case _, Held(values):
            update.guard_present(messages.owner(mark_name(change.key, zone), zone), messages.TXT, values)
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
        case Replace(owner=str(owner), resource=resource):
            update.replace(change.record)
            update.replace(mark(change.key, zone, owner, resource))
        case Delete():
            update.delete(change.record.owner, change.record.type)
            if change.owner:
                update.delete(messages.owner(mark_name(change.key, zone), zone), messages.TXT)


def _guard_unmarked(update: Update, change: Change, zone: str) -> None:
    update.guard_absent(messages.owner(mark_name(change.key, zone), zone), messages.TXT)
