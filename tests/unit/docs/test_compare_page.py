"""docs/compare-loadbalancers.md claims nothing for us that no test shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[3] / "docs" / "compare-loadbalancers.md"
_TEXT = PAGE.read_text()
_LINK = re.compile(r'\]\((?P<file>[^)\s]+)(?: "(?P<test>\w+)")?\)')
LINKS = sorted({(link["file"], link["test"]) for link in _LINK.finditer(_TEXT)})
OURS = [(row.split("|")[1].strip(), row.split("|")[2].strip()) for row in re.findall(r"^\| .*", _TEXT, re.M)]


@pytest.mark.parametrize(
    ("file", "test"), [link for link in LINKS if link[0].startswith("../tests/")], ids=lambda part: part
)
def test_each_link_leads_to_a_test(file: str, test: str | None) -> None:
    assert test, "a link to a test has its name as its title"
    assert re.search(rf"^(?:async )?def {test}\(", (PAGE.parent / file).read_text(), re.MULTILINE)


@pytest.mark.parametrize("file", [file for file, test in LINKS if test is None])
def test_each_other_link_leads_somewhere(file: str) -> None:
    assert (PAGE.parent / file.partition("#")[0]).is_file()


@pytest.mark.parametrize(("what", "cell"), OURS, ids=[what for what, _ in OURS])
def test_whatever_is_said_of_us_is_shown_or_is_no_praise(what: str, cell: str) -> None:
    linked = _LINK.search(cell) is not None
    assert linked or cell == "windowbox" or cell.startswith(("no", "untried"))
