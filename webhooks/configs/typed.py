"""Objects of Go structs: which fields there are, of which type, and which of them are written while empty.

A table gives each struct's fields by their JSON name. A type is a scalar, a name of another struct, or
one of these with `*` (may be absent), `[]` (list) or `{}` (mapping) before it. With `?` at its end, an empty
value is not written, as with Go's `omitempty`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from typing import Any

from webhooks.configs import durations, goyaml
from windowbox.models.extensions import instant, spelled

Table = Mapping[str, Mapping[str, str]]
"""Of each struct the types of its fields."""

_QUANTITY = re.compile(
    r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?", re.ASCII
)
_RANGES = {"int32": (-(2**31), 2**31 - 1), "uint32": (0, 2**32 - 1), "int64": (-(2**63), 2**63 - 1)}


class WrongType(Exception):
    """A field has a value of another type."""


def typed(value: object, kind: str, table: Table, where: str = "") -> object:
    """The value as its struct has it: unknown fields are gone, absent ones have their zero value."""
    kind = kind.removesuffix("?")
    if kind.startswith("*"):
        return None if value is None else typed(value, kind[1:], table, where)
    if kind.startswith(("[]", "{}")):
        return None if value is None else _collection(value, kind, table, where)
    if kind in table:
        return _struct(value, kind, table, where)
    return _ZEROS[kind] if value is None else _SCALARS[kind](value, where)


def encoded(value: object, kind: str, table: Table) -> object:
    """A typed value as it is written: without fields that are empty and need not be there."""
    bare = kind.removesuffix("?").removeprefix("*")
    match value:
        case dict() if bare in table:
            fields = table[bare].items()
            return {
                name: encoded(value[name], field, table)
                for name, field in fields
                if not (field.endswith("?") and _is_empty(value[name], field, table))
            }
        case dict():
            return {name: encoded(one, bare[2:], table) for name, one in value.items()}
        case list():
            return [encoded(one, bare[2:], table) for one in value]
        case _:
            return value


def _is_empty(value: object, kind: str, table: Table) -> bool:
    if value is None:
        return True
    # Structs, and what Go keeps in structs, are never empty; nor is what is pointed to.
    bare = kind.removesuffix("?")
    if bare.startswith("*") or bare in table or bare in ("duration", "quantity", "flushes"):
        return False
    return value in ("", 0, False) or value in ([], {})


def _struct(value: object, kind: str, table: Table, where: str) -> dict[str, object]:
    if value is not None and not isinstance(value, Mapping):
        raise _wrong(where, value, "a mapping")
    given: Mapping[str, Any] = value or {}
    prefix = f"{where}." if where else ""
    return {name: typed(given.get(name), field, table, prefix + name) for name, field in table[kind].items()}


def _collection(value: object, kind: str, table: Table, where: str) -> object:
    if kind.startswith("[]"):
        if not isinstance(value, list):
            raise _wrong(where, value, "a list")
        return [typed(one, kind[2:], table, f"{where}[{at}]") for at, one in enumerate(value)]
    if not isinstance(value, Mapping):
        raise _wrong(where, value, "a mapping")
    return {key: typed(one, kind[2:], table, f"{where}[{key}]") for key, one in value.items()}


def _string(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise _wrong(where, value, "a string")
    return value


def _bool(value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise _wrong(where, value, "true or false")
    return value


def _integer(kind: str) -> Callable[[object, str], int]:
    least, most = _RANGES[kind]

    def check(value: object, where: str) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise _wrong(where, value, f"a whole number between {least} and {most}")
        return value

    return check


def _float(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e308:
        raise _wrong(where, value, "a number")
    return value


def _float32(value: object, where: str) -> float:
    number = _float(value, where)
    try:
        single = struct.unpack("f", struct.pack("f", number))[0]
    except OverflowError:
        raise _wrong(where, value, "a number below 3.4e38") from None
    shortest = (f"{single:.{digits}g}" for digits in range(1, 10))
    return next(float(text) for text in shortest if struct.pack("f", float(text)) == struct.pack("f", single))


def _duration(value: object, where: str) -> str:
    try:
        return durations.spelled(durations.parsed(_string(value, where)))
    except ValueError:
        raise _wrong(where, value, "a duration such as 1m30s") from None


def _flushes(value: object, where: str) -> str | int:
    """Nanoseconds, or a duration."""
    return _duration(value, where) if isinstance(value, str) else _SCALARS["int64"](value, where)


def _time(value: object, where: str) -> str:
    moment = instant(value)
    if moment is None:
        raise _wrong(where, value, "a time such as 2026-01-01T00:00:00Z")
    return spelled(moment)


def _quantity(value: object, where: str) -> str:
    text = value if isinstance(value, str) else goyaml.dump(value).strip()
    if isinstance(value, bool) or len(text) > 100 or not _QUANTITY.fullmatch(text):
        raise _wrong(where, value, "a quantity such as 100Mi")
    return text


def _wrong(where: str, value: object, wanted: str) -> WrongType:
    return WrongType(f"{where or 'the content'} is {value!r:.50}: it has to be {wanted}")


_SCALARS: dict[str, Callable[[object, str], Any]] = {
    "string": _string,
    "bool": _bool,
    **{kind: _integer(kind) for kind in _RANGES},
    "float64": _float,
    "float32": _float32,
    "duration": _duration,
    "flushes": _flushes,
    "time": _time,
    "quantity": _quantity,
}
_ZEROS: dict[str, object] = {
    "string": "",
    "bool": False,
    **dict.fromkeys(("int32", "uint32", "int64", "float64", "float32", "flushes"), 0),
    "duration": "0s",
    "quantity": "0",
}
