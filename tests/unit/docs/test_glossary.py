"""docs/glossary.md defines windowbox's own words, and names the files in which the field's terms happen."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
_TEXT = (ROOT / "docs" / "glossary.md").read_text()
_OWN, _STANDARD = _TEXT.split("## Where the field's terms happen")
STANDARD = frozenset(
    {
        "reconcile", "requeue", "work queue", "health check", "endpoint", "listener", "allocation", "lease",
        "drift", "finalizer", "predicate", "mapping", "drain", "cordon", "eviction", "rolling update",
        "surge", "replicas", "bootstrap token", "orphan", "backoff", "operation annotation", "lastOperation",
        "lastError",
    }
)  # fmt: skip
PACKAGES = ("bus", "watchers", "patchers", "webhooks", "workers", "commands", "sandbox", "windowbox")


def _rows(text: str) -> list[list[str]]:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line[:2] == "| "
    ]
    return rows[1:]


TERMS = [(term, row) for row in _rows(_OWN) for term in row[0].split(", ")]
PLACES = [
    (term, file)
    for terms, files in _rows(_STANDARD)
    for term in terms.split(", ")
    for file in re.findall(r"`([^`]+)`", files)
]


def test_the_glossary_stays_short() -> None:
    assert len(_rows(_OWN)) <= 50


@pytest.mark.parametrize("text", [_OWN, _STANDARD], ids=["own", "standard"])
def test_the_terms_are_sorted(text: str) -> None:
    terms = [row[0].lower() for row in _rows(text)]
    assert terms == sorted(terms)


@pytest.mark.parametrize(("term", "row"), TERMS, ids=[term for term, _ in TERMS])
def test_each_term_is_defined_and_used(term: str, row: list[str]) -> None:
    assert len(row) == 3
    assert all(row), "a term has the nearest term of the field, and a meaning"
    used = re.compile(re.escape(term).replace(r"\ ", r"[\s_]?"), re.IGNORECASE)
    code = (path.read_text() for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    assert any(used.search(text) for text in code), f"{term} is defined, but no code uses it"


def test_every_standard_term_has_a_place() -> None:
    assert {term for term, _ in PLACES} == STANDARD


@pytest.mark.parametrize(("term", "file"), PLACES, ids=lambda part: part)
def test_grep_leads_from_a_standard_term_to_its_place(term: str, file: str) -> None:
    said = "\n".join(_said(ast.parse((ROOT / file).read_text())))
    assert re.search(re.escape(term).replace(r"\ ", r"[\s_]?"), said, re.IGNORECASE)


def _said(tree: ast.Module) -> list[str]:
    """Names that the module defines, and docstrings: what a person who greps takes for the place itself."""
    found = [ast.get_docstring(tree) or ""]
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found += [node.name, ast.get_docstring(node) or ""]
        elif isinstance(node, ast.Assign):
            found += [target.id for target in node.targets if isinstance(target, ast.Name)]
    return found


def test_the_readme_links_the_glossary_on_its_first_screen() -> None:
    first_screen = (ROOT / "README.md").read_text().splitlines()[:30]
    assert any("docs/glossary.md" in line for line in first_screen)
