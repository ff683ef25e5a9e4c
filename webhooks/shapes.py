"""Reads fields of objects under review, and copies objects with changed ones. Wrong types are Undecodable."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
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


_PATTERN = re.compile(
    r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:([KMGTPE]i)|([numkMGTPE])|[eE]([+-]?\d{1,3}))?", re.ASCII
)
_LONGEST = 100
_BINARY: dict[str, int] = {f"{letter}i": 1024 ** (at + 1) for at, letter in enumerate("KMGTPE")}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


def spelled(found: Json, wanted: Mapping[str, str]) -> dict[str, Any]:
    """The wanted quantities, in the spelling of the found ones where both have the same value."""
    return {
        name: found[name] if name in found and value(found[name]) == value(one) else one
        for name, one in wanted.items()
    }


def value(quantity: object) -> Decimal | None:
    """The number that a quantity stands for; None if it is not a quantity."""
    text = str(quantity)
    if isinstance(quantity, bool) or len(text) > _LONGEST or not (found := _PATTERN.fullmatch(text)):
        return None
    number, binary, decimal, exponent = found.groups()
    if binary:
        return Decimal(number) * _BINARY[binary]
    return Decimal(number).scaleb(_DECIMAL[decimal] if decimal else int(exponent or 0))
