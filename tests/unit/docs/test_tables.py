"""Tables in the docs hold facts: sentences belong in paragraphs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LONGEST = 200
_LINK = re.compile(r"\]\([^)]*\)")


def long_cells(text: str) -> list[str]:
    """The cells of tables with more than 200 characters; the targets of links do not count."""
    rows = [line for line in text.splitlines() if line.startswith("|")]
    cells = [cell.strip() for row in rows for cell in _LINK.sub("]", row).split("|")]
    return [cell for cell in cells if len(cell) > LONGEST]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_cells_are_short(page: Path) -> None:
    assert long_cells(page.read_text()) == []


def test_a_long_cell_is_found() -> None:
    assert long_cells(f"| short | {'x' * 201} |\n| [{'y' * 10}]({'z' * 300}) |") == ["x" * 201]
