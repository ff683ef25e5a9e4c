"""How many of this host's inotify instances Envoy may have, and for whom.

Each file with a cluster's endpoints costs one. An Envoy that gets none ends at once.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from pathlib import Path

from windowbox.models.loadbalancers import Listener
from workers.loadbalancer.envoy.resources import Configuration

_LIMIT = Path("/proc/sys/fs/inotify/max_user_instances")
_ELSEWHERE = 100
"""Where there is no inotify, files are what is scarce."""


def affordable(before: Configuration, wanted: Collection[Listener]) -> int:
    """How many clusters may have a file of their own.

    A third of what is left: the rest is for the Envoy that replaces this one, and for other programs of the
    same user.
    """
    limit = int(_LIMIT.read_text()) if _LIMIT.exists() else _ELSEWHERE
    have = len(before.endpoints)
    if all(one.name in before.endpoints for one in wanted if one.protocol == "UDP"):
        return have
    return min(limit // 4, have + max(0, limit - _used()) // 3)


def chosen(before: Configuration, wanted: Collection[Listener], most: int) -> frozenset[str]:
    """Whose endpoints get a file of their own: flows of UDP, first those that have one already."""
    names = (one.name for one in wanted if one.protocol == "UDP")
    return frozenset(sorted(names, key=lambda name: (name not in before.endpoints, name))[:most])


def _used() -> int:
    """How many instances the processes of this user have."""
    count = 0
    for pid in filter(str.isdigit, os.listdir("/proc") if _LIMIT.exists() else ()):
        with contextlib.suppress(OSError):  # ended meanwhile, or another user's
            if os.stat(f"/proc/{pid}").st_uid == os.getuid():
                count += sum(_is_instance(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd"))
    return count


def _is_instance(descriptor: str) -> bool:
    with contextlib.suppress(OSError):
        return os.readlink(descriptor) == "anon_inode:inotify"
    return False
