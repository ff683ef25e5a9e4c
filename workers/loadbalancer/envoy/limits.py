"""Limits of this host that Envoy must stay below: open files, connections, UDP flows, inotify instances.

An Envoy that gets no further file, or no inotify instance at its start, exits.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Collection
from pathlib import Path

from windowbox.models.loadbalancers import Listener

_MOST_CONNECTIONS = 50_000
"""Connections of all listeners together. Further ones are closed at once, so that memory is bounded."""
_MOST_FLOWS = 16_384
_FEWEST_FLOWS = 1_024
"""UDP flows of one port. Datagrams of further flows are dropped."""

_INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")
_ELSEWHERE = 100
"""Clusters with a file of their own on systems without inotify, where open files are scarce instead."""


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


def affordable(have: Collection[str], wanted: Collection[Listener]) -> int:
    """How many clusters may read their endpoints from a file of their own: each costs an inotify instance.

    `have` names the listeners with such a file. A third of the free instances is used: the rest is for the
    Envoy that replaces this one, and for other programs of the same user.
    """
    if all(one.name in have for one in wanted if one.protocol == "UDP"):
        return len(have)
    limit, used = _ELSEWHERE, 0
    if _INSTANCES.exists():
        limit, used = int(_INSTANCES.read_text()), _used_instances()
    return min(limit // 4, len(have) + max(0, limit - used) // 3)


def chosen(have: Collection[str], wanted: Collection[Listener], most: int) -> frozenset[str]:
    """UDP listeners whose endpoints get a file of their own; those that have one already come first."""
    names = (one.name for one in wanted if one.protocol == "UDP")
    return frozenset(sorted(names, key=lambda name: (name not in have, name))[:most])


def _used_instances() -> int:
    """How many inotify instances the processes of this user have."""
    count = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it has ended meanwhile, or belongs to another user
            if os.stat(f"/proc/{pid}").st_uid == os.getuid():
                for descriptor in os.listdir(f"/proc/{pid}/fd"):
                    with contextlib.suppress(OSError):  # it was closed meanwhile
                        count += os.readlink(f"/proc/{pid}/fd/{descriptor}") == "anon_inode:inotify"
    return count
