"""docs/security.md claims nothing that no test shows: its links lead to tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[3] / "docs" / "security.md"
LINKS = sorted(re.findall(r'\]\((\.\./tests/[^)\s]+) "(\w+)"\)', PAGE.read_text()))


@pytest.mark.parametrize(("file", "test"), LINKS, ids=lambda part: part)
def test_each_link_leads_to_a_test(file: str, test: str) -> None:
    assert re.search(rf"^(?:async )?def {test}\(", (PAGE.parent / file).read_text(), re.MULTILINE)
