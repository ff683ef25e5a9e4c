"""Limits of this host that Envoy must stay below: open files, connections, UDP flows.

An Envoy that gets no further file exits.
"""

from __future__ import annotations

import resource

_MOST_CONNECTIONS = 50_000
"""Connections of all listeners together. Further ones are closed at once, so that memory is bounded."""
_MOST_FLOWS = 16_384
_FEWEST_FLOWS = 1_024
"""UDP flows of one port. Datagrams of further flows are dropped."""


def most_files() -> int:
    """How many files Envoy may have open: it inherits the hard limit of this process."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return 2**20 if hard == resource.RLIM_INFINITY else hard


def most_connections(files: int) -> int:
    """Connections of all listeners. Each takes two files; UDP flows and health checks get a quarter."""
    return min(_MOST_CONNECTIONS, files * 3 // 8)


def most_of_one(files: int) -> int:
    """Connections to one port of one address: however many clients it has, it leaves some to other ports."""
    return most_connections(files) * 3 // 4


def most_flows(files: int) -> int:
    """UDP flows of one port, each of which takes a file. Envoy has no limit for all ports together."""
    return min(_MOST_FLOWS, max(files // 32, min(_FEWEST_FLOWS, files // 8)))
