"""Tests wait for events: where real time has to pass, they say why."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[2]


def test_every_sleep_in_a_test_has_its_reason() -> None:
    unexplained = [
        f"{path.relative_to(TESTS)}:{line}"
        for path in sorted(TESTS.rglob("*.py"))
        if "sleep(" in (text := path.read_text())
        for line in _sleeps(text)
        if not any("# " in said for said in text.splitlines()[line - 2 : line])
    ]
    assert unexplained == [], "wait for an event, or say in a comment why time must pass"


def _sleeps(text: str) -> Iterator[int]:
    """The lines with a sleep; `sleep(0)` only lets others have a turn."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Call(func=ast.Attribute(attr="sleep"), args=[ast.Constant(value=0)]):
                pass
            case ast.Call(func=ast.Attribute(attr="sleep")):
                yield node.lineno
