"""The inventory of an account: cloud objects that were made for Shoots, and those that exist without them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from ipaddress import IPv4Address
from typing import Any, NamedTuple
from uuid import UUID

from windowbox.errors import Malformed
from windowbox.models.objects import mapping, mappings

MOST_OBJECTS = 1_000
"""Of one Shoot, and of those that exist without Shoots in one account."""
MOST_REFERENCES = 100
"""Existing objects that one Shoot uses."""
LARGEST, LARGEST_TOGETHER = 8 << 10, 512 << 10
"""Bytes of one object, and of all of one Shoot."""
_PLAYED_ADDRESSES = int(IPv4Address("255.0.0.0"))
"""Reserved (RFC 1112), so no network has it: nothing answers at these addresses."""
_PLAYED_SIZE = 1 << 17


@dataclass(frozen=True)
class CloudObject:
    """One thing of a cloud, such as a VPC or a reserved address."""

    kind: str
    """In the cloud's words: `vpc`, `subnet`, `elastic-ip`."""
    id: str
    name: str = ""
    properties: Mapping[str, Any] = field(default_factory=dict)
    used_by: str = ""
    """Of an object that exists without a Shoot: the technical id of the one that uses it alone."""
    shared: bool = False
    """Of such an object: any number of Shoots may use it."""


class Reference(NamedTuple):
    """An object that documents call existing: somebody has to have added it."""

    kind: str
    id: str
    """Its id or, for kinds that are referred to by name, its name."""
    path: str
    """The field that names it."""
    exclusive: bool = False
    """One Shoot at a time uses it."""


Found = Mapping[tuple[str, str], CloudObject]
"""The existing objects that a config refers to, by kind and id. Missing ones are not there."""


def required(found: Found, reference: Reference, owner: str) -> CloudObject:
    """The object. Malformed if it is not there, or another Shoot uses it."""
    one = found.get((reference.kind, reference.id))
    if one is None:
        raise Malformed(
            f"{reference.path}: Not found: {reference.id!r:.80}: the account has no such {reference.kind}: "
            "correct the field, or add it with `windowbox cloud add`, one of another Shoot with --shared"
        )
    if reference.exclusive and one.used_by not in ("", owner) and not one.shared:
        raise Malformed(
            f"{reference.path}: Invalid value: {reference.id!r:.80}: this {reference.kind} is used by "
            f"{one.used_by}: choose another"
        )
    return one


def require_properties(one: CloudObject, reference: Reference, **expected: Any) -> None:
    """Malformed if a property of the existing object has another value. Missing ones are as expected."""
    for name, value in expected.items():
        if str(found := one.properties.get(name, value)) != str(value):
            raise Malformed(
                f"{reference.path}: Invalid value: {reference.id!r:.80}: {name} of this {one.kind} is "
                f"{found!r:.80} and has to be {value!r:.80}: change it, or choose another {one.kind}"
            )


def address_of(one: CloudObject, reference: Reference) -> str:
    """The public address of an existing object: as somebody added it, else one that stands for it."""
    given = one.properties.get("address")
    try:
        return str(IPv4Address(str(given))) if given else played_address(one.kind, one.id)
    except ValueError as error:
        raise Malformed(
            f"{reference.path}: Invalid value: {reference.id!r:.80}: address of this {one.kind} is "
            f"{given!r:.80} and has to be an IPv4 address: correct it"
        ) from error


def digest(*parts: str) -> str:
    """64 hexadecimal digits that stand for these parts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def made_id(prefix: str, *parts: str, digits: int = 17) -> str:
    """A stable id such as `vpc-0a1b…`: the same for the same parts, for repeated runs."""
    return f"{prefix}{digest(prefix, *parts)[:digits]}"


def made_uuid(*parts: str) -> str:
    """The same for clouds whose ids are UUIDs."""
    return str(UUID(digest(*parts)[:32], version=4))


def fingerprint(public_key: str) -> str:
    """16 pairs of digits that stand for a key."""
    return ":".join(re.findall("..", digest(public_key)[:32]))


def played_address(*parts: str) -> str:
    """A public address that stands for one of the cloud. Nothing answers there."""
    return str(IPv4Address(_PLAYED_ADDRESSES + int(digest(*parts)[:8], 16) % _PLAYED_SIZE))


def account_name(cloud: str, identity: str) -> str:
    """The name of an account in the inventory. The identity, part of credentials, cannot be read from it."""
    return f"{cloud}-{int(digest(cloud, identity)[:10], 16) % 10**12:012d}"


def cloud_of(account: str) -> str:
    """The cloud of an account of this name."""
    return account.rpartition("-")[0]


def encoded(objects: Iterable[CloudObject]) -> list[dict[str, Any]]:
    """For the bus, without fields that have their defaults. Malformed if they are too many or too large."""
    found = [{name: value for name, value in asdict(one).items() if value} for one in objects]
    if len(found) > MOST_OBJECTS:
        raise Malformed(f"the cloud has {len(found)} objects, more than {MOST_OBJECTS}: ask for fewer zones")
    size = 0
    for one in found:
        size += (own := len(json.dumps(one)))
        if own > LARGEST:
            what = f"{one.get('kind')} {one.get('name') or one.get('id')!s:.80}"
            raise Malformed(f"{what} has more than {LARGEST} bytes: shorten its fields")
    if size > LARGEST_TOGETHER:
        raise Malformed(
            f"the objects of the cloud have {size} bytes together, more than {LARGEST_TOGETHER}: "
            "shorten names, or ask for fewer zones"
        )
    return found


def decoded(given: object) -> list[CloudObject]:
    """The objects, as far as they have the form."""
    return [
        CloudObject(
            kind=str(one.get("kind")),
            id=str(one.get("id")),
            name=str(one.get("name") or ""),
            properties=mapping(one.get("properties")),
            used_by=str(one.get("used_by") or ""),
            shared=one.get("shared") is True,
        )
        for one in mappings(given)
    ]


_KEY = re.compile(r"[^-_a-zA-Z0-9]")


def key(account: str, *parts: str) -> str:
    """The key of a bucket's entry. Ids that have other characters than keys may have are hashed."""
    safe = (part if part and not _KEY.search(part) else f"={digest(part)[:32]}" for part in parts)
    return ".".join([account, *safe])
