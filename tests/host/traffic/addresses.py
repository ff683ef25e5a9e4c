"""Addresses for load balancers and clients, and their removal: `python -m tests.host.traffic.addresses`.

IPv4 addresses are loopback addresses, all of which are there. IPv6 addresses are put on `lo`, by us or by the
attachment of Envoy, and have to be taken off again.
"""

from __future__ import annotations

import ipaddress
import json
import subprocess
import sys
from contextlib import AbstractContextManager

from sandbox import processes
from tests.support.guardian import guarded


def free() -> tuple[str, str, str]:
    """Prefixes that no other run has: load balancers' IPv4 and IPv6, and one for IPv6 clients."""
    port = processes.free_port()
    v6 = f"fd77:6e64:7472:{port:x}"
    return f"127.{port >> 8}.{port & 255}.0/24", f"{v6}::/120", f"{v6}:1::/120"


def removed_at_the_end(*prefixes: str) -> AbstractContextManager[int]:
    """Take everything in `prefixes` off `lo` at the end, even if this process is killed."""
    return guarded(__name__, *prefixes)


def add(address: str) -> None:
    _ip("address", "replace", f"{address}/128", "dev", "lo", "nodad")


def present(prefix: str) -> set[str]:
    """The addresses of `prefix` that are on `lo`."""
    network = ipaddress.ip_network(prefix)
    (link,) = json.loads(_ip("-json", "address", "show", "dev", "lo"))
    found = (entry["local"] for entry in link["addr_info"])
    return {address for address in found if ipaddress.ip_address(address) in network}


def _ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


if __name__ == "__main__":
    for prefix in sys.argv[1:]:
        for address in present(prefix):
            _ip("address", "del", f"{address}/128", "dev", "lo")
