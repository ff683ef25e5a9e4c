"""The addresses of a range that can be allocated, and the order in which a Service tries them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address

from windowbox.models.loadbalancers import Family
from windowbox.settings.lbsettings import Network, Range

_LOCALHOST = (ip_address("127.0.0.1"), ip_address("::1"))
"""Servers of the host listen there."""


def candidates(range_: Range, family: Family, seed: str) -> Iterator[str]:
    """Every address of the family that can be allocated, once, in an order that `seed` decides.

    The seed is the Service's name: a recreated Service tries its former address first, and concurrent ones
    rarely try the same. Nothing is held in memory: a prefix may be huge.
    """
    prefixes = range_.of_family(family)
    total = sum(prefix.num_addresses for prefix in prefixes)
    if not total:
        return
    digest = hashlib.sha256(seed.encode()).digest()
    place = int.from_bytes(digest[:16]) % total
    step = int.from_bytes(digest[16:]) % total
    # A step that is coprime to the total visits every place.
    while math.gcd(step, total) != 1:
        step += 1
    for _ in range(total):
        nth = place
        for prefix in prefixes:
            if nth < prefix.num_addresses:
                break
            nth -= prefix.num_addresses
        address = prefix[nth]
        if _usable(address, prefix):
            yield str(address)
        place = (place + step) % total


def size(range_: Range, family: Family) -> int:
    """The number of addresses of the family that can be allocated."""
    return sum(prefix.num_addresses - _unusable(prefix) for prefix in range_.of_family(family))


def contains(range_: Range, address: str) -> bool:
    """Whether it is one of the addresses that can be allocated."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    return any(found in prefix and _usable(found, prefix) for prefix in range_.prefixes)


def _usable(address: IPv4Address | IPv6Address, prefix: Network) -> bool:
    """Whether it is neither a network's nor a broadcast address in any likely network.

    The size of the network is not known here (a range is often a part of one), but 172.18.255.255 is the
    broadcast address of most, and fd00:ff:: the anycast address of its routers. A prefix of one or two
    addresses is used as it is.
    """
    if address in _LOCALHOST:
        return False
    if prefix.max_prefixlen - prefix.prefixlen <= 1:
        return True
    if isinstance(address, IPv4Address):
        return int(address) & 0xFF not in (0, 0xFF)
    return int(address) & ((1 << 64) - 1) != 0


def _unusable(prefix: Network) -> int:
    """The number of its addresses that are not usable, without an iteration."""
    block = 8 if prefix.version == 4 else 64
    ends = (0, 0xFF) if prefix.version == 4 else (0,)
    bits = prefix.max_prefixlen - prefix.prefixlen
    if bits <= 1:
        return sum(address in prefix for address in _LOCALHOST)
    first = int(prefix.network_address) % (1 << block)
    within = sum(first <= end < first + (1 << bits) for end in ends)
    whole = 1 << max(bits - block, 0)
    return within * whole + sum(address in prefix for address in _LOCALHOST)
