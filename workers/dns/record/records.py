"""Validates DNSRecords: rejects everything that a server would refuse or silently ignore."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from ipaddress import AddressValueError, IPv4Address, IPv6Address, ip_address
from typing import cast, get_args

from windowbox.errors import Malformed
from windowbox.models.gardener.dnsrecord import DNSRecordSpec
from windowbox.models.recordsets import RecordKey, RecordSet, RecordType

DEFAULT_TTL = 120
MAX_TTL = 2**31 - 1
"""A server silently stores a larger one as 0."""
MAX_VALUES = 100
"""BIND's `max-records-per-type`; it answers SERVFAIL to one more."""
MAX_TEXT = 4_096
MAX_TEXTS = 32_768
"""Octets of one TXT value and of all of them: the whole set has to fit one message of 64 KiB, both ways."""

_RECORD_TYPES = get_args(RecordType)
_HOST_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_ANY_LABEL = re.compile(r"[a-z0-9_-]+")


def zone_for(name: str, spec_zone: str | None, status_zone: str | None, zones: Iterable[str]) -> str:
    """The zone of `name`: `spec.zone`, else that of the last report, else the longest around it."""
    known = [_plain(zone) for zone in zones]
    owner = _plain(name)
    if spec_zone:
        zone = _plain(spec_zone)
        if not _contains(zone, owner):
            raise Malformed(
                f"spec.zone {_short(zone)} does not contain spec.name {_short(owner)}: correct one of them"
            )
        if zone not in known:
            raise Malformed(
                f"spec.zone {_short(zone)} is none of the configured zones ({', '.join(sorted(known))}): "
                "leave it empty, or add it to the settings"
            )
        return zone
    if status_zone and _plain(status_zone) in known and _contains(_plain(status_zone), owner):
        return _plain(status_zone)
    around = [zone for zone in known if _contains(zone, owner)]
    if not around:
        raise Malformed(
            f"spec.name {_short(name)} is in no configured zone ({', '.join(sorted(known)) or 'none'}): "
            "correct the name, or add its zone to the settings"
        )
    return max(around, key=lambda zone: zone.count("."))


def key(spec: DNSRecordSpec, zone: str) -> RecordKey:
    """The key of the RRset, whose values need not be valid: enough to delete it."""
    if spec.record_type not in _RECORD_TYPES:
        raise Malformed(f"spec.recordType {_short(spec.record_type)} is unknown: use A, AAAA, CNAME or TXT")
    record_type = cast(RecordType, spec.record_type)
    name = _plain(spec.name)
    _check_name("spec.name", name, spec.name, host=record_type in ("A", "AAAA"))
    if not _contains(zone, name):
        raise Malformed(
            f"spec.name {_short(spec.name)} is outside zone {zone}: correct the name or spec.zone"
        )
    return RecordKey(name, record_type)


def wanted(spec: DNSRecordSpec, zone: str) -> RecordSet:
    """The RRset that `spec` asks for, normalized."""
    record = key(spec, zone)
    if not spec.values:
        raise Malformed("spec.values is empty: give at least one value, or delete the record")
    distinct = list(dict.fromkeys(spec.values))
    if len(distinct) > MAX_VALUES:  # before they are parsed: it may be tens of thousands
        raise Malformed(
            f"spec.values holds {len(distinct)} values: a name server takes at most {MAX_VALUES} of one "
            "type, so spread them over several names"
        )
    ttl = DEFAULT_TTL if spec.ttl is None else spec.ttl
    if not 0 <= ttl <= MAX_TTL:
        raise Malformed(
            f"spec.ttl {ttl} is out of range: use 0 to {MAX_TTL} seconds, or leave it out for {DEFAULT_TTL}"
        )
    match record.type:
        case "A":
            values = tuple(str(a) for a in sorted({_ipv4(value) for value in distinct}))
        case "AAAA":
            values = tuple(str(a) for a in sorted({_ipv6(value) for value in distinct}))
        case "CNAME":
            values = (_target(distinct, record, zone),)
        case "TXT":
            values = _texts(distinct)
    return RecordSet(record, ttl, values)


def _contains(zone: str, name: str) -> bool:
    return not zone or name == zone or name.endswith("." + zone)


def _plain(name: str) -> str:
    return name.lower().removesuffix(".")


def _short(value: str) -> str:
    return f'"{value}"' if len(value) <= 60 else f'"{value[:45]}…" ({len(value)} characters)'


def _bad_value(value: str, why: str) -> Malformed:
    return Malformed(f"spec.values holds {_short(value)}, {why}")


def _check_name(field: str, name: str, shown: str, *, host: bool) -> None:
    """Raise Malformed unless `name` is a name, perhaps a wildcard; with `host`, a host name."""
    if not name:
        raise Malformed(f'{field} "{name}" is empty: write a full name, like api.local.gardener.cloud')
    if len(name) > 253:
        raise Malformed(f"{field} {_short(name)} is longer than 253 characters: shorten it")
    for label in name.removeprefix("*.").split("."):
        if problem := _label_problem(label, host=host):
            raise Malformed(f"{field} {_short(shown)} {problem}")


def _label_problem(label: str, *, host: bool) -> str | None:
    if not label:
        return "has an empty part: remove the dot that is too many"
    if len(label) > 63:
        return f"has a part of {len(label)} characters, {_short(label)}: shorten it to at most 63"
    if not label.isascii():
        return f'has letters beyond ASCII in "{label}": write its xn-- form'
    if "*" in label:
        return 'has a "*" that is not the whole first part: write wildcards like *.example.com'
    if not _ANY_LABEL.fullmatch(label):
        return f'has characters that no name may hold in "{label}": use letters, digits, hyphens and dots'
    if host and not _HOST_LABEL.fullmatch(label):
        return (
            f'has the part "{label}", which is not a host name as A and AAAA records need it: '
            "use letters, digits, and hyphens inside"
        )
    return None


def _ipv4(value: str) -> IPv4Address:
    try:
        return IPv4Address(value)
    except AddressValueError:
        pass
    try:
        mapped = _plain_ipv6(value).ipv4_mapped
    except AddressValueError:
        why = "which is not an IPv4 address: write four decimal numbers, like 192.0.2.1"
        raise _bad_value(value, why) from None
    if mapped is None:
        raise _bad_value(value, "an IPv6 address in an A record: use recordType AAAA for it")
    return mapped


def _ipv6(value: str) -> IPv6Address:
    try:
        address = _plain_ipv6(value)
    except AddressValueError:
        with contextlib.suppress(AddressValueError):
            IPv4Address(value)
            why = "an IPv4 address in an AAAA record: use recordType A for it"
            raise _bad_value(value, why) from None
        raise _bad_value(value, "which is not an IPv6 address: write it like 2001:db8::1") from None
    if address.ipv4_mapped is not None:
        remedy = f"write {address.ipv4_mapped} in a record of recordType A"
        raise _bad_value(value, f"an IPv4 address written as IPv6, which no client can use: {remedy}")
    return address


def _plain_ipv6(value: str) -> IPv6Address:
    if "%" in value:
        raise AddressValueError(f"zone ids mean nothing to other hosts: {value!r}")
    return IPv6Address(value)


def _target(values: list[str], record: RecordKey, zone: str) -> str:
    targets = {_plain(value) for value in values}
    if len(targets) > 1:
        raise Malformed(
            f"spec.values holds {len(targets)} targets, {_short(values[0])} first: a CNAME has exactly one"
        )
    if record.name == zone:
        raise Malformed(
            f"spec.name {_short(record.name)} is the apex of its zone, where no CNAME can be: use A or AAAA"
        )
    target = targets.pop()
    _check_name("spec.values", target, target, host=False)
    with contextlib.suppress(ValueError):
        ip_address(target)
        raise _bad_value(target, "an address in a CNAME record: use recordType A for it")
    if target == record.name:
        raise _bad_value(target, "the record's own name: point it somewhere else")
    return target


def _texts(values: list[str]) -> tuple[str, ...]:
    total = 0
    for value in values:
        try:
            octets = len(value.encode())
        except UnicodeEncodeError:
            raise Malformed(
                f'spec.values holds "{ascii(value)[1:46]}", half of a surrogate pair: write proper Unicode'
            ) from None
        total += octets
        if not octets:
            raise Malformed('spec.values holds "", a text without content: remove it, or give it content')
        if octets > MAX_TEXT:
            raise _bad_value(value, f"{octets} octets: shorten it to {MAX_TEXT}")
    if total > MAX_TEXTS:
        raise Malformed(
            f"spec.values holds {total} octets in all: spread them over several names, {MAX_TEXTS} each"
        )
    return tuple(sorted(values))
