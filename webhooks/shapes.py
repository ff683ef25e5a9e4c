"""Reads fields of objects under review, and copies objects with changed ones. Wrong types are Undecodable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from webhooks.review import Review, Undecodable
from windowbox.models.objects import Json, Object


def part(object: Json, *path: str) -> Json:
    """The mapping at a path; empty where there is none."""
    found: Any = object
    for at, key in enumerate(path, 1):
        found = found.get(key)
        if found is None:
            return {}
        if not isinstance(found, Mapping):
            raise _wrong(".".join(path[:at]), "an object", found)
    return found  # type: ignore[no-any-return]


def objects(parent: Json, key: str) -> list[Json]:
    """The list of objects in a field; empty where there is none."""
    found = parent.get(key)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(one, Mapping) for one in found):
        raise _wrong(key, "a list of objects", found)
    return found


def text(parent: Json, key: str) -> str:
    """The string in a field; empty where there is none."""
    found = parent.get(key)
    if found is None:
        return ""
    if not isinstance(found, str):
        raise _wrong(key, "a string", found)
    return found


def given(parent: Json, key: str, kind: type, wanted: str) -> bool:
    """Whether the field is present, even if empty; `wanted` names its kind in the error."""
    found = parent.get(key)
    if found is not None and not isinstance(found, kind):
        raise _wrong(key, wanted, found)
    return found is not None


def name(review: Review) -> str:
    """The object's name; the request has none where the API server generates it."""
    return Object(review.object).name or review.name


def namespace(review: Review) -> str:
    return Object(review.object).namespace or review.namespace


def put(object: Json, value: object, *path: str) -> dict[str, Any]:
    """A copy of the object with the value at a path; None removes the field."""
    first, *rest = path
    if rest:
        return {**object, first: put(part(object, first), value, *rest)}
    kept = {key: old for key, old in object.items() if key != first or value is not None}
    return kept if value is None else {**kept, first: value}


def named(found: list[Json], entry: Json, key: str) -> list[Json]:
    """The list with the entry in the place of the one with the same name, or at its end."""
    for at, one in enumerate(found):
        if one.get(key) == entry[key]:
            return [*found[:at], entry, *found[at + 1 :]]
    return [*found, entry]


def _wrong(where: str, wanted: str, found: object) -> Undecodable:
    return Undecodable(f"{where} is not {wanted}, but {type(found).__name__}")
