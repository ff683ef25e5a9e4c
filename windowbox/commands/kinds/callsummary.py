"""What runs of kinds that make objects asked at their doors, in plain words: for `trace`."""

from __future__ import annotations

from typing import Any

from bus.messages import Call
from windowbox.commands.kinds import ownedobjects

_AS_EVER = frozenset({"look", "list", "records", "sharers", "patience", "signs"})
"""Doors through which nothing but a look is taken."""


def told(call: Call) -> str | None:
    """One line; empty where nothing is worth telling, None where the door is none of these."""
    if call.door in _AS_EVER:
        return ""
    if call.door == "provider":
        return _provider(call.request, call.answer)
    found = ownedobjects.told(call)
    if found is None:
        return None
    return "" if found.did == ownedobjects.LEFT else f"{found.did} {found.title}"


def _provider(request: Any, answer: Any) -> str:
    secret = request.get("secret", "") if isinstance(request, dict) else ""
    return (
        f"makes objects in cluster {answer}, by the Secret {secret}" if answer else f"by the Secret {secret}"
    )
