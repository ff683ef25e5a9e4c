"""Differences of two JSON values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

ABSENT: Any = object()
"""No value, as distinct from null: in a merge patch, null deletes a field."""


def changes(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The differences of two JSON values: path, old value, new value."""
    was = {} if old is ABSENT and new else old
    is_ = {} if new is ABSENT and old else new
    if isinstance(was, dict) and isinstance(is_, dict):
        for name in dict.fromkeys([*was, *is_]):
            place = f"{path}.{name}" if path else str(name)
            yield from changes(was.get(name, ABSENT), is_.get(name, ABSENT), place)
    elif old is ABSENT or new is ABSENT or old != new:
        yield path, old, new
