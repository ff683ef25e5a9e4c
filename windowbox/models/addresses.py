"""IP addresses and prefixes from foreign text, in the only spelling that all programs read alike.

Python's `ipaddress` takes more: netmasks instead of lengths, lengths with leading zeros, zones, and IPv4 in
IPv6, which its `is_loopback` does not know. Go refuses these, or reads them in another way.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_LENGTH = re.compile(r"0|[1-9][0-9]{0,2}")


def address(text: str) -> Address | None:
    """The address; None if the text is none."""
    try:
        found = ip_address(text)
    except ValueError:
        return None
    return None if isinstance(found, IPv6Address) and (found.scope_id or found.ipv4_mapped) else found


def prefix(text: str) -> Network | None:
    """The network that an address with the length of a prefix is in; None if the text is neither."""
    start, _, length = text.rpartition("/")
    if address(start) is None or not _LENGTH.fullmatch(length):
        return None
    try:
        return ip_network(text, strict=False)
    except ValueError:
        return None
