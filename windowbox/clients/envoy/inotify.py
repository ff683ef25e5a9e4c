"""How many of this host's inotify instances Envoy may have, and for whom.

Each file with a cluster's endpoints costs one. An Envoy that gets none ends at once.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from windowbox.clients.envoy.resources import Configuration
from windowbox.models.loadbalancers import Listener

_LIMIT = Path("/proc/sys/fs/inotify/max_user_instances")
_ELSEWHERE = 100
"""Where there is no inotify, files are what is scarce."""
_OTHERS = 0.5
"""The share that is left to other programs of the same user."""


def affordable() -> int:
    """How many clusters may have a file of their own: two Envoys run while one replaces the other."""
    limit = int(_LIMIT.read_text()) if _LIMIT.exists() else _ELSEWHERE
    return int(limit * _OTHERS / 2)


def chosen(before: Configuration, wanted: Collection[Listener], most: int) -> frozenset[str]:
    """Whose endpoints get a file of their own: flows of UDP, first those that have one already."""
    names = (one.name for one in wanted if one.protocol == "UDP")
    return frozenset(sorted(names, key=lambda name: (name not in before.endpoints, name))[:most])
