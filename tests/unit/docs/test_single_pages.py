"""What single pages claim: glossary, walks, comparison, security, and the places of CONTRIBUTING.md."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from pathlib import Path

import pytest
import yaml

import webhooks
from commands.cli import COMMANDS
from tests.support.cases import cases
from webhooks.table import WEBHOOKS
from windowbox.kinds import KINDS, Served
from windowbox.models.webhooks import REGISTRATIONS

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
_OWN, _STANDARD = (DOCS / "glossary.md").read_text().split("## Where the field's terms happen")
STANDARD = frozenset(
    {
        "reconcile", "requeue", "work queue", "health check", "endpoint", "listener", "allocation", "lease",
        "drift", "finalizer", "predicate", "mapping", "drain", "cordon", "eviction", "rolling update",
        "surge", "replicas", "bootstrap token", "orphan", "backoff", "operation annotation", "lastOperation",
        "lastError",
    }
)  # fmt: skip
PACKAGES = ("bus", "watchers", "patchers", "webhooks", "workers", "commands", "sandbox", "ui", "windowbox")


def _rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line[:2] == "| "]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


TERMS = [(term, row) for row in _rows(_OWN) for term in row[0].split(", ")]
PLACES = [
    (term, file)
    for terms, files in _rows(_STANDARD)
    for term in terms.split(", ")
    for file in re.findall(r"`([^`]+)`", files)
]


def test_the_glossary_stays_short() -> None:
    assert len(_rows(_OWN)) <= 42


@cases("text", ("own", _OWN), ("standard", _STANDARD))
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


_WALKS = (DOCS / "architecture.md").read_text().split("## Seven walks through the code")[1].split("\n## ")[0]
STEPS = re.findall(r"`([\w/]+\.py)`\s+`(\w+)`", _WALKS)


def test_there_are_seven_walks() -> None:
    assert len(re.findall(r"^### ", _WALKS, re.MULTILINE)) == 7
    assert len(STEPS) > 30


@pytest.mark.parametrize(("file", "name"), STEPS, ids=lambda part: part)
def test_each_step_of_a_walk_exists(file: str, name: str) -> None:
    assert re.search(rf"^ *(?:async def|def|class) {name}\b", (ROOT / file).read_text(), re.MULTILINE)


_COMPARED = (DOCS / "compare-loadbalancers.md").read_text()
_LINK = re.compile(r'\]\((?P<file>[^)\s]+)(?: "(?P<test>\w+)")?\)')
CLAIMS = sorted(
    {
        (link["file"], link["test"])
        for text in (_COMPARED, (DOCS / "security.md").read_text())
        for link in _LINK.finditer(text)
        if link["file"].startswith("../tests/")
    }
)
OURS = [line.split("|")[1:3] for line in _COMPARED.splitlines() if line[:2] == "| "]


@pytest.mark.parametrize(("file", "test"), CLAIMS, ids=lambda part: part)
def test_each_link_to_tests_names_one(file: str, test: str | None) -> None:
    assert test, "a link to a test has its name as its title"
    assert re.search(rf"^(?:async )?def {test}\(", (DOCS / file).read_text(), re.MULTILINE)


@pytest.mark.parametrize(("what", "cell"), OURS, ids=[what.strip() for what, _ in OURS])
def test_the_comparison_claims_nothing_untested(what: str, cell: str) -> None:
    assert _LINK.search(cell) or cell.strip() == "windowbox" or cell.strip().startswith(("no", "untried"))


MODULES = [found.name for found in pkgutil.walk_packages(webhooks.__path__, "webhooks.")]
COMMAND_PLACES = [entry.place for section in COMMANDS.values() for entry in section.values()]


@pytest.mark.parametrize("row", KINDS, ids=lambda row: row.pool)
def test_the_package_of_a_row_assembles_its_pool(row: Served) -> None:
    assert hasattr(importlib.import_module(row.module), "serving" if row.type else "assembled")


def test_each_extension_kind_has_an_example() -> None:
    shown = {
        manifest["kind"]
        for path in (ROOT / "examples").glob("*.yaml")
        for manifest in yaml.safe_load_all(path.read_text())
        if manifest
    }
    assert {row.resource.kind for row in KINDS if row.type} | {"Ingress"} <= shown


def test_each_registered_webhook_is_in_the_table() -> None:
    assert REGISTRATIONS.keys() == WEBHOOKS.keys()


@pytest.mark.parametrize("name", MODULES)
def test_the_webhook_of_a_module_is_in_the_table(name: str) -> None:
    webhook = getattr(importlib.import_module(name), "WEBHOOK", None)
    assert webhook is None or webhook in WEBHOOKS.values()


@pytest.mark.parametrize("place", COMMAND_PLACES)
def test_the_module_of_a_command_has_it(place: str) -> None:
    module, _, name = place.partition(":")
    assert hasattr(importlib.import_module(module), name)
