"""Text becomes HTML as text."""

from __future__ import annotations

import hashlib
import re
import time
from pathlib import Path

import pytest

from tests.support.hostile import values
from tests.support.pages import record
from ui import rendering
from ui.guarding import Guard, is_loopback, name_of
from ui.health import Health
from ui.limits import Limits
from ui.rendering import Renderer
from ui.views import find
from ui.views.find import Found, Match
from ui.views.table import VIEWS

VENDOR = Path(rendering.__file__).parent / "static" / "vendor"


@pytest.mark.parametrize(
    "text", [*values.TEXTS, "</title><script>alert(1)</script>", '" onmouseover="x', "{{ 7*7 }}"]
)
def test_hostile_texts_are_shown_and_nothing_else(text: str) -> None:
    renderer = Renderer(VIEWS, time.time)
    ref = record(text, text)
    model = Found(text, (Match(ref, text, Health("failed", text)),), 1)
    html = renderer.view(find.VIEW, {"q": text}, {"model": model})
    html.encode()  # half of a pair of UTF-16 would fail
    assert not re.search(r"<script|onmouseover=\"x|\u202e|\u2028|\x1b|\x00", html)
    assert html.count("<tr") == 2


@pytest.mark.parametrize(
    ("text", "shown"), [("a\u202eb", r"a\u202eb"), ("a\x1b[2J", r"a\u001b[2J"), ("ä🦀", "ä🦀")]
)
def test_characters_that_hide_or_turn_text_are_shown_by_number(text: str, shown: str) -> None:
    assert rendering.visible(text) == shown


def test_an_address_holds_each_name_in_one_segment() -> None:
    url = rendering.story_url(record("a/b?c#d", "../x"))
    assert url == "/story/runtime/dnsrecords.extensions.gardener.cloud/..%2Fx/a%2Fb%3Fc%23d"


@pytest.mark.parametrize(
    ("host", "ours"),
    [
        ("127.0.0.1:8470", True), ("localhost:1", True), ("[::1]:8470", True), ("127.9.9.9", True),
        ("page.example.com", True), ("PAGE.example.com:443", True), ("evil.example.com", False),
        ("127.0.0.1.evil.example.com", False), ("localhost.evil.example.com", False), ("", False),
        ("10.0.0.1", False), ("[::1", False), ("user@127.0.0.1@evil.example.com", False),
    ],
)  # fmt: skip
def test_the_page_is_served_by_its_own_names_only(host: str, ours: bool) -> None:
    assert Guard(["page.example.com"], Limits()).is_ours(host) is ours


def test_loopback_is_known() -> None:
    assert is_loopback(name_of("[::1]:1"))
    assert not is_loopback("0.0.0.0")


def test_libraries_are_as_their_authors_published_them() -> None:
    rows = re.findall(
        r"^\| `([\w.-]+)` .*`([0-9a-f]{64})` \|$", (VENDOR / "README.md").read_text(), re.MULTILINE
    )
    assert {name for name, _ in rows} == {path.name for path in VENDOR.glob("*.js")}
    for name, digest in rows:
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == digest


def test_no_template_has_a_script_or_a_style_of_its_own() -> None:
    for path in (Path(rendering.__file__).parent / "templates").glob("*.html"):
        text = path.read_text()
        assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=|\|\s*safe|https?://", text), (
            path.name
        )
