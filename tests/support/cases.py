"""Tables of cases: each row is the case's id, which may name rules of the contract, and its arguments."""

from __future__ import annotations

from typing import Any

import pytest


def cases(names: str, *rows: tuple[Any, ...]) -> pytest.MarkDecorator:
    """`@cases("given found", ("LB-1-wants", 1, 2), …)`: names are separated by blanks."""
    return pytest.mark.parametrize(names.split(), [pytest.param(*row, id=name) for name, *row in rows])
