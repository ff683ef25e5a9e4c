from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import coverage_page
from tests.support.cases import cases
from tests.support.coverage_page import REASONS, RULES

_OF_WEBHOOKS = re.compile(r"(WW|WF|WA|WP|AD)-\d+")
_OF_CLOUDS = re.compile(r"(?:ALL|ALI|AWS|AZU|EQX|GCP|OST)-[A-Z]?\d+")
_OF_MACHINES = re.compile(r"[A-D]\d+(-R\d+)?|L\d+|AP1\.\d")
CONTRACT = Path(__file__).resolve().parents[3] / "shared" / "contract"


def test_the_page_says_what_the_tests_show(collected: list[str]) -> None:
    wanted = coverage_page.page(coverage_page.coverage(collected))
    found = coverage_page.PAGE.read_text() if coverage_page.PAGE.exists() else ""
    assert found == wanted, "docs/contract-coverage.md is out of date: run `make coverage-of-contract`"


def test_every_rule_has_either_a_test_or_a_reason(collected: list[str]) -> None:
    covered = coverage_page.coverage(collected)
    assert coverage_page.open_rules(covered) == []
    assert REASONS.keys() & covered.keys() == set()
    assert REASONS.keys() <= RULES


def test_no_test_names_a_rule_that_does_not_exist(collected: list[str]) -> None:
    assert coverage_page.unknown(collected) == {}


def test_the_page_shows_each_rule_without_a_test() -> None:
    text = coverage_page.page({"S-1": {"tests/a.py::test_b": 1}})
    rows = re.findall(r"^\| (\S+) \|", text.split("## Rules without")[1], re.MULTILINE)
    assert set(rows) == {"Rule", *RULES} - {"S-1"}


def test_the_tests_of_a_rule_are_listed() -> None:
    text = coverage_page.listing({"DN-5": {"tests/a.py::test_b": 2}}, "DN-5")
    assert "    tests/a.py::test_b  (2 cases)" in text.splitlines()
    assert "LB-" not in text


@cases(
    "test rules",
    ("none", "test_b", set()),
    ("one", "test_b[DN-5]", {"DN-5"}),
    ("two", "test_b[DN-5+V-3-words]", {"DN-5", "V-3"}),
    ("last", "test_b[words-first-U-1]", {"U-1"}),
    ("tables", "test_b[C.5-12+V7-words]", {"C.5-12", "V7"}),
    ("section", "test_b[2.19-host-resolvers-macos]", {"2.19-host-resolvers"}),
    ("address", "test_b[replace-A-1.2.3.4]", set()),
    ("words", "test_b[LB-5-taint-excludes]", {"LB-5-taint"}),
    ("defect", "test_b[LB-11-3+LB-7-ports]", {"LB-11-3", "LB-7-ports"}),
    ("kinds", "test_b[BA-1+B.13-words]", {"BA-1", "B.13"}),
    ("encoding", "test_b[UTF-8]", set()),
    ("machines", "test_b[C5-R1+L33-words]", {"C5-R1", "L33"}),
    ("chapter", "test_b[C7-two-words]", {"C7"}),
    ("cloud", "test_b[ALL-Z3+OST-C4+openstack-two-words]", {"ALL-Z3", "OST-C4"}),
)
def test_rules_are_found_in_ids(test: str, rules: set[str]) -> None:
    assert coverage_page.named(f"tests/a.py::{test}") & RULES == rules


def test_the_rules_are_those_of_the_contract() -> None:
    machines = {rule for rule in RULES if _OF_MACHINES.fullmatch(rule)}
    webhooks = {rule for rule in RULES if _OF_WEBHOOKS.fullmatch(rule)}
    clouds = {rule for rule in RULES if _OF_CLOUDS.fullmatch(rule)}
    assert clouds == set(re.findall(rf"\b{_OF_CLOUDS.pattern}\b", _contract("clouds")))
    others = {rule for rule in RULES - machines - webhooks - clouds if not rule.startswith(("2.19-", "LB-"))}
    assert others == _extension_rules() | _dns_rules()
    assert webhooks == _webhook_rules()
    assert machines <= set(
        _matches(
            _contract("worker-machine"),
            r"(?:\*|\d+\.) \*\*([A-D]\d+-R\d+)\*\*",
            r"## ([A-D]\d+)\. ",
            r"\| (L\d+) \|",
            r"### (AP1\.\d) ",
        )
    )


def _extension_rules() -> set[str]:
    text = _contract("extensions")
    chapters = ("2.4", "2.5", "2.6", "2.7", "2.8", "2.10", "2.12", "2.13", "2.14", "2.15")
    kinds = "".join(_between(text, f"## {chapter} ", "## ") for chapter in chapters)
    rows = {
        f"{table}-{number}"
        for table, until in (("C.5", "## C.6"), ("C.6", "# Appendix D"))
        for number, _ in enumerate(
            _matches(_between(text, f"## {table} ", until), r"\| (?!annotation|#|-)"), 1
        )
    }
    limitations = _matches(_between(text, "# Appendix B", "# Appendix C"), r"(\d+)\. ")
    return {
        *_matches(_between(text, "# 1. ", "## 2.4 "), r"(?:\* |\| )([A-Z]-\d+) "),
        *_matches(kinds, r"\* ([A-Z]{1,2}-\d+) "),
        *_matches(text, r"## (A\.\d+) "),
        *(f"B.{number}" for number in limitations),
        *("C.1", "C.2", "C.3"),
        *rows,
    }


def _dns_rules() -> set[str]:
    text = _contract("dns")
    rows = _matches(_between(text, "# 2. ", "# 3. "), r"\| (\d\d) \|")
    return {*_matches(text, r"\* (DN-\d+) ", r"\| (V\d+) \|"), *(f"DN-{number}" for number in rows)}


def _webhook_rules() -> set[str]:
    text = _contract("webhooks")
    processes = _between(text, "## 4.1 ", "## 4.6 ")  # the rest is about other programs
    return {
        *_matches(text, r"\| (AD-\d+) \|"),
        *(f"WA-{number}" for number in _matches(text, r"## A\.(\d+) ")),
        # Other chapters have rules W-1, F-1 and P-1 of their own.
        *(f"W{rule}" for rule in _matches(text, r"\| ([WF]-\d+) \|")),
        *(f"W{rule}" for rule in _matches(processes, r"\| (P-\d+) \|")),
    }


def _contract(chapter: str) -> str:
    if not CONTRACT.is_dir():
        pytest.skip("the contract to compare with is not here")
    return (CONTRACT / f"{chapter}.md").read_text()


def _matches(text: str, *patterns: str) -> list[str]:
    """What the patterns find at the beginning of lines."""
    return [found for pattern in patterns for found in re.findall(f"^{pattern}", text, re.MULTILINE)]


def _between(text: str, start: str, end: str) -> str:
    return text.split(f"\n{start}", 1)[1].split(f"\n{end}", 1)[0]
