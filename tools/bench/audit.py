"""Requests to the API server by user and verb, from its audit log."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import orjson

from windowbox.models.refs import HEARTBEATS

_OURS = "system:windowbox:"
WRITES = frozenset({"create", "update", "patch", "delete"})


class AuditLog:
    """Counts windowbox's requests since the last read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0

    def requests(self) -> Counter[str]:
        """Requests of windowbox since the last read, such as `patch dnsrecords/status`."""
        with self._path.open("rb") as log:
            log.seek(self._read)
            *lines, unfinished = log.read().split(b"\n")
            self._read = log.tell() - len(unfinished)
        counted: Counter[str] = Counter()
        for line in lines:
            if name := _request(orjson.loads(line)):
                counted[name] += 1
        return counted


def writes(requests: Counter[str]) -> int:
    return sum(count for name, count in requests.items() if name.split()[0] in WRITES)


def without_events(requests: Counter[str]) -> Counter[str]:
    """Only writes other than Events."""
    return Counter({name: count for name, count in requests.items() if name.split()[1] != "events"})


def _request(event: dict[str, object]) -> str | None:
    user, about = event["user"], event.get("objectRef")
    if not isinstance(user, dict) or not str(user.get("username")).startswith(_OURS):
        return None
    # A watch has a second stage, when it begins; counted is the end of each request.
    if event["stage"] != "ResponseComplete" or not isinstance(about, dict):
        return None
    if about.get("name") == HEARTBEATS.named:
        return None  # it does not depend on the load
    part = f"/{about['subresource']}" if "subresource" in about else ""
    return f"{event['verb']} {about['resource']}{part}"
