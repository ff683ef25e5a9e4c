"""Host names of load balancers. Each contains its IPv4 address, so that the name tells whose it is."""

from __future__ import annotations

import hashlib
import re
from ipaddress import IPv4Address

_ENDING = re.compile(r"-(?:(?P<hex>[0-9a-f]{8})[0-9a-f]{8}|(?P<number>[0-9]{1,10}))$")


def hostname(pattern: str, address: str) -> str:
    """The name of a load balancer with this IPv4 address: see `clouds.frame.balancers.Balancer.hostname`."""
    number = int(IPv4Address(address))
    unique = hashlib.sha256(pattern.encode()).hexdigest()[:8]
    return pattern.replace("{number}", str(number)).replace("{id}", f"{number:08x}{unique}")


def address_in(name: str) -> str | None:
    """The address of the load balancer of this name; None if the name is not one of ours."""
    found = _ENDING.search(name.partition(".")[0])
    if found is None:
        return None
    number = int(found["hex"], 16) if found["hex"] else int(found["number"])
    return str(IPv4Address(number)) if number < 1 << 32 else None
