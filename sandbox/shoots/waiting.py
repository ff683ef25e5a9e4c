"""Waits for objects of an API server, by their events."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from sandbox.servers.apiserver import ApiServer
from windowbox.errors import Refused, Unreachable

Object = dict[str, Any]

_SHORT = 5


def until(
    api: ApiServer, path: str, name: str, holds: Callable[[Object], bool], what: str, *, patience: float
) -> Object:
    """The object, once it meets the condition; Unreachable with its own words after `patience`."""
    found: Object = {}
    for found in _versions(api, path, name, patience):
        if found and holds(found):
            return found
    raise Unreachable(f"{what} after {patience:.0f} s: {described(found)}")


def until_gone(api: ApiServer, path: str, name: str, what: str, *, patience: float) -> None:
    found: Object = {}
    for found in _versions(api, path, name, patience):
        if not found:
            return
    raise Unreachable(f"{what} after {patience:.0f} s: {described(found)}")


def described(found: Object) -> str:
    """The state that the object itself reports."""
    if not found:
        return "it does not exist"
    status = found.get("status") or {}
    for key in ("lastError", "lastOperation"):
        if said := (status.get(key) or {}).get("description"):
            return str(said)
    left = found["metadata"].get("finalizers") or []
    return f"finalizers {', '.join(left)}" if left else "its status is empty; is a worker running?"


def succeeded(found: Object) -> bool:
    """Whether the object reports success for its latest generation."""
    status = found.get("status") or {}
    operation = (status.get("lastOperation") or {}).get("state")
    return operation == "Succeeded" and status.get("observedGeneration") == found["metadata"]["generation"]


def read(api: ApiServer, path: str) -> Object:
    """The object at `path`; empty if it does not exist."""
    try:
        return api.read(path)
    except Refused as error:
        if getattr(error.__cause__, "code", None) == 404:
            return {}
        # Any other refusal does not tell whether the object exists.
        raise Unreachable(f"{error}: run the command again") from error


def _versions(api: ApiServer, path: str, name: str, patience: float) -> Iterator[Object]:
    """The object now, and after each change; empty if it does not exist."""
    limit = time.monotonic() + patience
    while time.monotonic() < limit:
        found = read(api, f"{path}/{name}")
        yield found
        # A watch from version 0 begins with what exists, so an object that appears meanwhile is not missed.
        version = found["metadata"]["resourceVersion"] if found else "0"
        watched = f"{path}?fieldSelector=metadata.name={name}&resourceVersion={version}"
        seconds = max(1, min(_SHORT, int(limit - time.monotonic())))
        for event in api.events(watched, seconds=seconds):
            if event["type"] == "ERROR":
                break
            yield {} if event["type"] == "DELETED" else event["object"]
            if time.monotonic() > limit:
                break
