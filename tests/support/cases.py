"""Tables of cases: each row is the case's id, which may name rules of the contract, and its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest


def cases(names: str, *rows: Any) -> pytest.MarkDecorator:
    """`@cases("given found", ("LB-1-wants", 1, 2), …)`: names are separated by blanks."""
    split = names.replace(",", " ").split()
    if isinstance(rows[0], Mapping):
        rows = tuple((key, *((row,) if len(split) == 1 else row)) for key, row in rows[0].items())
    return pytest.mark.parametrize(split, [_case(row) for row in rows])


class Long(tuple[Any, ...]):
    """A row that runs with LONG=1 only: those beside it show the same of another kind."""


def long(*row: Any) -> Long:
    """`@cases("given", ("one", 1), long("two", 2))`."""
    return Long(row)


def _case(row: tuple[Any, ...]) -> Any:
    name, *arguments = row
    return pytest.param(*arguments, id=name, marks=[pytest.mark.long] if isinstance(row, Long) else [])
