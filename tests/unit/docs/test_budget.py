"""A tenant's budget in docs/security.md: the bounds are those of the code, and nothing is missing."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from windowbox.kinds import KINDS
from windowbox.models.refs import HEARTBEATS

ROOT = Path(__file__).resolve().parents[3]
PRODUCT = ("bus", "clouds", "patchers", "watchers", "webhooks", "windowbox", "workers")
PAGE = (ROOT / "docs/security.md").read_text()
METRICS = (ROOT / "windowbox/telemetry/metrics.py").read_text()
_TABLE = re.compile(r"^### (?P<title>[^\n]+)\n(?P<text>.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
_CONSTANT = re.compile(r"`([\w/]+)\.py` `(\w+)`")


def rows(title: str) -> list[list[str]]:
    """The cells of a table of the section "A tenant's budget"."""
    _, _, section = PAGE.partition("## A tenant's budget\n")
    [text] = [found["text"] for found in _TABLE.finditer(section) if found["title"] == title]
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


BOUNDS = [*rows("Many objects"), *rows("Within one object")]


def numbers(value: object) -> Iterator[float]:
    """The numbers of a constant, which may be a tuple of others."""
    if isinstance(value, Iterable) and not isinstance(value, str):
        for one in value:
            yield from numbers(one)
    else:
        assert isinstance(value, int | float)
        yield value


def spellings(number: float) -> set[str]:
    """The ways in which the page may write a number."""
    found = {f"{number:,g}", f"{number:,.0f}", f"{100 * number:g} %"}
    for power, unit in enumerate(("KiB", "MiB", "GiB"), 1):
        found.add(f"{number / 1024**power:g} {unit}")
    return found


@pytest.mark.parametrize("row", BOUNDS, ids=lambda row: row[0])
def test_a_bound_of_the_page_is_that_of_the_code(row: list[str]) -> None:
    _, most, place, *_ = row
    for module, name in _CONSTANT.findall(place):
        value = getattr(importlib.import_module(module.replace("/", ".")), name)
        for number in numbers(value):
            assert any(
                re.search(rf"(?<![\w.,]){re.escape(text)}(?!\w|[.,]\d)", most) for text in spellings(number)
            ), f"{name} is {number}, and the page says: {most}"
    assert _CONSTANT.search(place) or "](" in most, "name the constant, or link the setting"


@pytest.mark.parametrize("row", BOUNDS, ids=lambda row: row[0])
def test_a_bound_has_a_test_and_says_how_it_shows(row: list[str]) -> None:
    *_, shown, test = row
    assert shown
    assert all(f'"{name}"' in METRICS for name in re.findall(r"`(windowbox_\w+)`", shown))
    assert "](../tests/" in test  # that the test exists is checked for all links


def test_each_kind_has_a_row() -> None:
    kinds = {row.resource.kind for row in KINDS} - {HEARTBEATS.kind}  # which no tenant writes
    listed = {
        kind for row in rows("Within one object") for kind in re.findall(r"\w+", row[0].partition(":")[0])
    }
    assert kinds - listed == set(), "say in docs/security.md what an object of the kind may have many of"


def listings() -> Iterator[str]:
    """The modules that list objects of an API server."""
    for path in sorted(path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("objects", "pages", "page")
                and isinstance(node.func.value, ast.Name | ast.Attribute)
                and "cloudcontroller" not in ast.unparse(node.func.value)
            ):
                yield str(path.relative_to(ROOT))


def test_each_listing_has_a_row() -> None:
    found = set(listings()) - {"windowbox/clients/kubernetes/kube.py"}
    named = {path for row in rows("Listings") for path in re.findall(r"`([\w/]+\.py)`", row[0])}
    assert found == named, "say in docs/security.md what bounds the listing"
