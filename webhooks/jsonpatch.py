"""Computes the JSON patch (RFC 6902) from one JSON value to another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Operation = dict[str, Any]


def between(old: Any, new: Any) -> list[Operation]:
    """The patch from `old` to `new`; empty if they mean the same.

    Missing, null and empty fields mean the same. Parts that both share by identity are not compared.
    """
    operations = list(_operations("", old, new))
    return operations if operations and not alike(old, new) else []


def alike(one: Any, other: Any) -> bool:
    """Whether both are equal, apart from fields that are null or empty."""
    if one is other or (_empty(one) and _empty(other)):
        return True
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return all(alike(one.get(name), other.get(name)) for name in one.keys() | other.keys())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other))
    return _equal(one, other)


def _operations(path: str, old: Any, new: Any) -> Iterator[Operation]:
    if old is new:
        return
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name, value in old.items():
            if name in new:
                yield from _operations(f"{path}/{_escaped(name)}", value, new[name])
            elif not _empty(value):
                yield {"op": "remove", "path": f"{path}/{_escaped(name)}"}
        for name, value in new.items():
            if name not in old:
                yield {"op": "add", "path": f"{path}/{_escaped(name)}", "value": value}
    elif isinstance(old, list) and isinstance(new, list):
        yield from _list_operations(path, old, new)
    elif not _equal(old, new):
        yield {"op": "replace", "path": path, "value": new}


def _list_operations(path: str, old: list[Any], new: list[Any]) -> Iterator[Operation]:
    """Equal entries at the beginning and the end stay; those between are changed in their order."""
    shorter = min(len(old), len(new))
    first = 0
    while first < shorter and _equal(old[first], new[first]):
        first += 1
    rest = 0
    while rest < shorter - first and _equal(old[-1 - rest], new[-1 - rest]):
        rest += 1
    old_end, new_end = len(old) - rest, len(new) - rest
    both = min(old_end, new_end)
    for index in range(first, both):
        yield from _operations(f"{path}/{index}", old[index], new[index])
    # From the end, since each removal moves the entries behind it.
    for index in range(old_end - 1, both - 1, -1):
        yield {"op": "remove", "path": f"{path}/{index}"}
    for index in range(both, new_end):
        yield {"op": "add", "path": f"{path}/{index}", "value": new[index]}


def _equal(one: Any, other: Any) -> bool:
    # In Python, `1 == True`.
    return one is other or (one == other and isinstance(one, bool) is isinstance(other, bool))


def _empty(value: Any) -> bool:
    return value is None or (isinstance(value, Mapping | list) and not value)


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
