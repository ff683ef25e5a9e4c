"""Errors of fields of an object, in the words of Kubernetes."""

from __future__ import annotations

import json
from collections.abc import Iterable

_MOST = 256
_LONGEST = 1 << 16
"""Characters of all errors: each may contain names of any length, or list all that is supported."""


def required(path: str, detail: str) -> str:
    return f"{path}: Required value: {detail}"


def forbidden(path: str, detail: str) -> str:
    return f"{path}: Forbidden: {detail}"


def invalid(path: str, value: object, detail: str) -> str:
    return f"{path}: Invalid value: {_quoted(value)}: {detail}"


def not_supported(path: str, value: object, supported: Iterable[str]) -> str:
    values = ", ".join(map(_quoted, supported))
    return f"{path}: Unsupported value: {_quoted(value)}: supported values: {values}"


def duplicate(path: str, value: object) -> str:
    return f"{path}: Duplicate value: {_quoted(value)}"


def too_many(path: str, found: int, most: int) -> str:
    return f"{path}: Too many: {found}: must have at most {most} items"


def too_long(path: str, most: int) -> str:
    return f"{path}: Too long: may not be more than {most} bytes"


def first(errors: Iterable[str]) -> list[str]:
    """The first errors, as many as an answer can hold. Lazy iterables are not read further."""
    found, length = [], 0
    for error in errors:
        found.append(error)
        length += len(error)
        if len(found) == _MOST or length > _LONGEST:
            break
    return found


def joined(errors: Iterable[str]) -> str:
    """All errors as one message, each once; empty if there are none."""
    each = list(dict.fromkeys(errors))
    return each[0] if len(each) == 1 else f"[{', '.join(each)}]" if each else ""


def _quoted(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
