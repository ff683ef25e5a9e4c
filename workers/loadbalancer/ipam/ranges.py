"""Which addresses there are to give away, and in which order a Service tries them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address

from windowbox.models.loadbalancers import Family
from windowbox.settings.lbsettings import Network, Range

_LOCALHOST = (ip_address("127.0.0.1"), ip_address("::1"))
"""Where everybody's servers are."""


def candidates(range_: Range, family: Family, seed: str) -> Iterator[str]:
    """Every address of the family that can be given away, once, in an order that `seed` decides.

    The same Service (its name is the seed) asks for the same address first, and so gets it again where it is
    free; many Services at once rarely ask for the same one. Nothing is held in memory: a prefix may be huge.
    """
    prefixes = range_.of_family(family)
    total = sum(prefix.num_addresses for prefix in prefixes)
    if not total:
        return
    digest = hashlib.sha256(seed.encode()).digest()
    place = int.from_bytes(digest[:16]) % total
    step = int.from_bytes(digest[16:]) % total
    # A step that has no divisor in common with the total comes by every place.
    while math.gcd(step, total) != 1:
        step += 1
    for _ in range(total):
        address, prefix = _nth(prefixes, place)
        if _usable(address, prefix):
            yield str(address)
        place = (place + step) % total


def size(range_: Range, family: Family) -> int:
    """How many addresses of the family can be given away."""
    return sum(prefix.num_addresses - _unusable(prefix) for prefix in range_.of_family(family))


def contains(range_: Range, address: str) -> bool:
    """Whether it is one of the addresses that can be given away."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    return any(found in prefix and _usable(found, prefix) for prefix in range_.prefixes)


def _nth(prefixes: Iterable[Network], place: int) -> tuple[IPv4Address | IPv6Address, Network]:
    for prefix in prefixes:
        if place < prefix.num_addresses:
            return prefix[place], prefix
        place -= prefix.num_addresses
    raise IndexError(place)


def _usable(address: IPv4Address | IPv6Address, prefix: Network) -> bool:
    """Whether it is never the name of a whole network.

    How large the networks are that an address will be in is not known here (a range is often a part of one),
    but 172.18.255.255 is the broadcast address of most, and fd00:ff:: the routers' of its own. A prefix of
    one or two addresses is taken at its word.
    """
    if address in _LOCALHOST:
        return False
    if prefix.max_prefixlen - prefix.prefixlen <= 1:
        return True
    if isinstance(address, IPv4Address):
        return int(address) & 0xFF not in (0, 0xFF)
    return int(address) & ((1 << 64) - 1) != 0


def _unusable(prefix: Network) -> int:
    """How many of its addresses are not usable, without going through them."""
    block = 8 if prefix.version == 4 else 64
    ends = (0, 0xFF) if prefix.version == 4 else (0,)
    bits = prefix.max_prefixlen - prefix.prefixlen
    if bits <= 1:
        return sum(address in prefix for address in _LOCALHOST)
    first = int(prefix.network_address) % (1 << block)
    within = sum(first <= end < first + (1 << bits) for end in ends)
    whole = 1 << max(bits - block, 0)
    return within * whole + sum(address in prefix for address in _LOCALHOST)
