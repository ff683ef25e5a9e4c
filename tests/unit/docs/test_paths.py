"""Files that the docs name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
HISTORY = ROOT / "CHANGELOG.md"
_FILE = re.compile(
    r"`((?:bus|deploy|docs|examples|patchers|tests|tools|watchers|webhooks|windowbox|workers)/[\w./-]+\.\w+)`"
)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page != HISTORY], ids=lambda page: str(page.relative_to(ROOT))
)
def test_files_exist(page: Path) -> None:
    assert [file for file in _FILE.findall(page.read_text()) if not (ROOT / file).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)", page.read_text())
    files = {link.partition("#")[0] for link in links if not link.startswith("http")} - {""}
    assert [file for file in files if not (page.parent / file).exists()] == []
