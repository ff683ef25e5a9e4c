"""Requests of the measured program to the API server by verb, from its audit log."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import orjson

from windowbox.models.refs import HEARTBEATS

_MEASURED = ("system:windowbox:", "provider-local")
"""Users whose requests count: those of windowbox, and of Gardener's own program while that runs instead."""
_LONGEST = 1 << 16
"""Bytes of a line: more than the API server writes without bodies."""
WRITES = frozenset({"create", "update", "patch", "delete"})


class AuditLog:
    """Counts the requests of the measured program since the last read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0

    def skip(self) -> None:
        """Count from now on, without a look at what was before: the log of a long run is large."""
        with self._path.open("rb") as log:
            size = log.seek(0, 2)
            log.seek(max(0, size - _LONGEST))
            self._read = size - len(log.read().rpartition(b"\n")[2])

    def requests(self) -> Counter[str]:
        """Requests since the last read, such as `patch dnsrecords/status`."""
        with self._path.open("rb") as log:
            log.seek(self._read)
            *lines, unfinished = log.read().split(b"\n")
            self._read = log.tell() - len(unfinished)
        counted: Counter[str] = Counter()
        for event in map(orjson.loads, lines):
            about = event.get("objectRef") or {}
            counts = str(event["user"].get("username")).startswith(_MEASURED)
            # A watch also logs its beginning: a request counts once, at its end.
            if not counts or not about or event["stage"] != "ResponseComplete":
                continue
            # The number of heartbeats does not depend on the load.
            if about.get("name") != HEARTBEATS.named:
                part = f"/{about['subresource']}" if "subresource" in about else ""
                counted[f"{event['verb']} {about['resource']}{part}"] += 1
        return counted


def writes(requests: Counter[str]) -> int:
    """How many of these requests write."""
    return sum(count for name, count in requests.items() if name.split()[0] in WRITES)


def without_events(requests: Counter[str]) -> Counter[str]:
    """These requests without those that create Events."""
    return Counter({name: count for name, count in requests.items() if name.split()[1] != "events"})
