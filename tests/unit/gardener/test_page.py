"""The lists of docs/gardener.md."""

from __future__ import annotations

from tools.gardener import page


def test_the_page_is_current() -> None:
    text = page.PAGE.read_text()
    assert page.page(text) == text, "run `make generate`"
