"""Summaries of the recorded calls of kinds that make objects, for `trace`."""

from __future__ import annotations

from typing import Any

from bus.messages import Call
from commands.kinds import ownedobjects

_READS = frozenset({"look", "list", "records", "sharers", "patience", "signs"})
"""Calls that only read."""


def summary(call: Call) -> str | None:
    """One line; empty for calls that are not shown, None for calls of other kinds."""
    if call.door in _READS:
        return ""
    if call.door == "provider":
        return _provider(call.request, call.answer)
    found = ownedobjects.change(call)
    if found is None:
        return None
    return "" if found.did == ownedobjects.LEFT else f"{found.did} {found.title}"


def _provider(request: Any, answer: Any) -> str:
    secret = request.get("secret", "") if isinstance(request, dict) else ""
    cluster = answer.get("cluster") if isinstance(answer, dict) else answer
    return f"provider cluster {cluster}, from the Secret {secret}" if cluster else f"from the Secret {secret}"
