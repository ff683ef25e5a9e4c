"""CIDR arithmetic with the results of Go's `net` package, and of Gardener's checks above it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from ipaddress import IPv6Address, ip_address, ip_network

from clouds.frame.problems import Problem, invalid

_LENGTH = re.compile(r"[0-9]{1,7}", re.ASCII)
_IPV4_BITS = 32
_IPV6_BITS = 128


class Cidr:
    """A range of addresses and the field that it stands in."""

    def __init__(self, text: str, path: str) -> None:
        self.text = text
        self.path = path

    @cached_property
    def _parsed(self) -> tuple[int, int, int] | None:
        """Bits of an address, bits of the prefix, and the address as a number; None if it is no range."""
        start, _, length = self.text.rpartition("/")
        try:
            address = ip_address(start)
        except ValueError:
            return None
        if not _LENGTH.fullmatch(length) or (isinstance(address, IPv6Address) and address.scope_id):
            return None
        bits: int = address.max_prefixlen
        prefix, number = int(length), int(address)
        if prefix > bits:
            return None
        if isinstance(address, IPv6Address) and address.ipv4_mapped and prefix >= _IPV6_BITS - _IPV4_BITS:
            # Go computes with such addresses as with IPv4.
            bits, prefix = _IPV4_BITS, prefix - (_IPV6_BITS - _IPV4_BITS)
            number = int(address.ipv4_mapped)
        return bits, prefix, number

    @property
    def is_range(self) -> bool:
        return self._parsed is not None

    @cached_property
    def key(self) -> tuple[int, int, int]:
        """Bits of an address, bits of the prefix, and the prefix as a number."""
        if self._parsed is None:
            raise ValueError(f"{self.text!r} is no range")
        bits, prefix, number = self._parsed
        return bits, prefix, number >> (bits - prefix)

    @property
    def is_canonical(self) -> bool:
        """Whether no bit is set behind the prefix. Texts that are no ranges are left to other checks."""
        if self._parsed is None:
            return True
        bits, prefix, number = self._parsed
        return number & ((1 << (bits - prefix)) - 1) == 0

    @property
    def canonical(self) -> str:
        """The range with no bit set behind the prefix. It has to be one."""
        return str(ip_network(self.text, strict=False))

    def contains(self, other: Cidr) -> bool:
        """Whether the whole other range lies in this one. Both have to be ranges."""
        bits, prefix, number = self.key
        other_bits, other_prefix, other_number = other.key
        return (
            bits == other_bits
            and prefix <= other_prefix
            and other_number >> (other_prefix - prefix) == number
        )

    def meets(self, other: Cidr) -> bool:
        """Whether the ranges have a common address. Both have to be ranges."""
        return self.contains(other) or other.contains(self)


def ranges(cidrs: Iterable[Cidr | None]) -> list[Cidr]:
    """Those that are given and can be parsed."""
    return [one for one in cidrs if one is not None and one.is_range]


def unparsable(*cidrs: Cidr | None) -> Iterator[Problem]:
    for one in cidrs:
        if one is not None and not one.is_range:
            yield invalid(one.path, one.text, "is no CIDR: write it as 10.250.0.0/16")


def not_canonical(*cidrs: Cidr | None) -> Iterator[Problem]:
    for one in ranges(cidrs):
        if not one.is_canonical:
            yield invalid(one.path, one.text, f"must be valid canonical CIDR: write it as {one.canonical}")


def unusable(*cidrs: Cidr | None) -> Iterator[Problem]:
    """Those that no network can have."""
    yield from unparsable(*cidrs)
    yield from not_canonical(*cidrs)


def outside(outer: Cidr | None, *inner: Cidr | None) -> Iterator[Problem]:
    """Those that do not lie in the outer range."""
    for one in ranges(inner) if ranges([outer]) else ():
        if outer is not None and one is not outer and not outer.contains(one):
            yield invalid(
                one.path, one.text, f'must be a subset of "{outer.path}" ("{outer.text}"): move it there'
            )


def meeting(first: Cidr | None, *others: Cidr | None) -> Iterator[Problem]:
    """Those that overlap with the first."""
    for one in ranges(others) if ranges([first]) else ():
        if first is not None and one is not first and first.meets(one):
            yield _overlap(one, first)


def meeting_each_other(cidrs: Iterable[Cidr | None]) -> Iterator[Problem]:
    """Those that overlap with an earlier one. Each range is looked up, not compared with all others."""
    seen: dict[tuple[int, int, int], Cidr] = {}
    around: dict[tuple[int, int, int], Cidr] = {}
    """Of each range that is larger than a seen one, a seen one in it."""
    for one in ranges(cidrs):
        bits, prefix, number = one.key
        larger = [(bits, prefix - up, number >> up) for up in range(prefix + 1)]
        found = around.get(one.key) or next((seen[each] for each in larger if each in seen), None)
        if found is not None:
            yield _overlap(one, found)
        seen.setdefault(one.key, one)
        for each in larger:
            around.setdefault(each, one)


def _overlap(one: Cidr, other: Cidr) -> Problem:
    return invalid(one.path, one.text, f'must not overlap with "{other.path}" ("{other.text}"): move one')
