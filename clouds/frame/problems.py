"""Problems of fields, with the path and type of error that the real extension reports."""

from __future__ import annotations

import contextlib
import heapq
import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pydantic import BaseModel

from windowbox.errors import Malformed
from windowbox.models import fielderrors

_LONGEST = 500
"""Characters of a value in a message."""
_LISTED = 50
"""Supported values in a message."""


class Problem(NamedTuple):
    """An error of one field."""

    path: str
    """Empty if the real extension names no field."""
    type: str
    message: str

    def __str__(self) -> str:
        return self.message


class Refused(Exception):
    """The check ends with these problems: the extension looks no further."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__(*problems)
        self.problems = problems


@contextlib.contextmanager
def refusing(path: str, type_: str) -> Iterator[None]:
    """Turn what cannot be read into an error of this field, of this type."""
    try:
        yield
    except Malformed as error:
        raise Refused(Problem(path, type_, str(error))) from error


def required(path: str, detail: str) -> Problem:
    return Problem(path, "Required", fielderrors.required(path, detail))


def forbidden(path: str, detail: str) -> Problem:
    return Problem(path, "Forbidden", fielderrors.forbidden(path, detail))


def invalid(path: str, value: object, detail: str) -> Problem:
    return Problem(path, "Invalid", fielderrors.invalid(path, _short(value), detail))


def not_supported(path: str, value: object, supported: Iterable[str]) -> Problem:
    some = [one[:_LONGEST] for one in heapq.nsmallest(_LISTED, supported)]
    return Problem(path, "NotSupported", fielderrors.not_supported(path, _short(value), some))


def duplicate(path: str, value: object) -> Problem:
    return Problem(path, "Duplicate", fielderrors.duplicate(path, _short(value)))


def listing(names: Iterable[str]) -> str:
    """The names, in order and with commas: the first ones if there are many."""
    return ", ".join(one[:_LONGEST] for one in heapq.nsmallest(_LISTED, names))


def _short(value: object) -> object:
    """The value for a message. Of a large one the beginning is enough: each of many messages repeats it."""
    if isinstance(value, BaseModel):
        value = value.model_dump(by_alias=True, exclude_none=True)
    if isinstance(value, str):
        return value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…"
    if not isinstance(value, list | dict):
        return value
    text = json.dumps(value, ensure_ascii=False)
    return value if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def too_many(path: str, found: int, most: int) -> Problem:
    return Problem(path, "TooMany", fielderrors.too_many(path, found, most))


def too_long(path: str, most: int) -> Problem:
    return Problem(path, "TooLong", fielderrors.too_long(path, most))


def plain(message: str) -> Problem:
    """An error for which the real extension names no field."""
    return Problem("", "Error", message)


def unchanged(path: str, new: object, old: object) -> Iterator[Problem]:
    """An error if an immutable field has another value. Empty lists and missing ones are the same."""
    if (None if new == [] else new) != (None if old == [] else old):
        yield invalid(path, new, f"field is immutable: set it to {old!r:.200} again")


def first_step(*steps: Iterable[Problem]) -> Iterator[Problem]:
    """The problems of the first step that finds any. Later steps do not run."""
    for step in steps:
        found = False
        for problem in step:
            found = True
            yield problem
        if found:
            return
