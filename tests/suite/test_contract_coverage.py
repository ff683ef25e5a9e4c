from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import coverage_page
from tests.support.coverage_reasons import REASONS

_OF_WEBHOOKS = re.compile(r"(WW|WF|WA|WP|AD)-\d+")
_OF_MACHINES = re.compile(r"[A-D]\d+(-R\d+)?|L\d+|AP1\.\d")
CONTRACT = Path(__file__).resolve().parents[3] / "shared" / "contract"


@pytest.fixture(scope="module")
def tests() -> list[str]:
    return coverage_page.collected()


def test_the_page_says_what_the_tests_show(tests: list[str]) -> None:
    wanted = coverage_page.page(coverage_page.coverage(tests))
    found = coverage_page.PAGE.read_text() if coverage_page.PAGE.exists() else ""
    assert found == wanted, "docs/contract-coverage.md is out of date: run `make coverage-of-contract`"


def test_every_rule_has_a_test_or_a_reason(tests: list[str]) -> None:
    assert coverage_page.open_rules(coverage_page.coverage(tests)) == []


def test_the_page_shows_each_rule_without_a_test() -> None:
    text = coverage_page.page({"S-1": {"tests/a.py::test_b": 1}})
    rows = {
        line.split("|")[1].strip()
        for line in text.split("## Rules without")[1].splitlines()
        if line[:2] == "| "
    }
    assert rows == {"Rule", *coverage_page.RULES} - {"S-1"}


def test_the_tests_of_a_rule_are_listed() -> None:
    text = coverage_page.listing({"DN-5": {"tests/a.py::test_b": 2}}, "DN-5")
    assert "    tests/a.py::test_b  (2 cases)" in text.splitlines()
    assert "LB-" not in text


def test_no_rule_is_excused_that_a_test_shows(tests: list[str]) -> None:
    assert REASONS.keys() & coverage_page.coverage(tests).keys() == set()


def test_no_test_names_a_rule_that_does_not_exist(tests: list[str]) -> None:
    assert coverage_page.unknown(tests) == {}


def test_only_rules_have_reasons() -> None:
    assert REASONS.keys() <= coverage_page.RULES


@pytest.mark.parametrize(
    ("test", "rules"),
    [
        ("tests/a.py::test_b", set()),
        ("tests/a.py::test_b[DN-5]", {"DN-5"}),
        ("tests/a.py::test_b[DN-5+V-3-words]", {"DN-5", "V-3"}),
        ("tests/a.py::test_b[words-first-U-1]", {"U-1"}),
        ("tests/a.py::test_b[C.5-12+V7-words]", {"C.5-12", "V7"}),
        ("tests/a.py::test_b[2.19-host-resolvers-macos]", {"2.19-host-resolvers"}),
        ("tests/a.py::test_b[replace-A-1.2.3.4]", set()),
        ("tests/a.py::test_b[LB-5-taint-excludes]", {"LB-5-taint"}),
        ("tests/a.py::test_b[LB-11-3+LB-7-ports]", {"LB-11-3", "LB-7-ports"}),
        ("tests/a.py::test_b[BA-1+B.13-words]", {"BA-1", "B.13"}),
        ("tests/a.py::test_b[UTF-8]", set()),
        ("tests/a.py::test_b[C5-R1+L33-words]", {"C5-R1", "L33"}),
        ("tests/a.py::test_b[C7-two-words]", {"C7"}),
    ],
    ids=[
        "none",
        "one",
        "two",
        "last",
        "tables",
        "section",
        "address",
        "words",
        "defect",
        "kinds",
        "encoding",
        "machines",
        "chapter",
    ],
)
def test_rules_are_found_in_ids(test: str, rules: set[str]) -> None:
    assert coverage_page.named(test) & coverage_page.RULES == rules


def test_the_list_of_rules_is_that_of_the_contract() -> None:
    if not CONTRACT.is_dir():
        pytest.skip("the contract to compare with is not here")
    listed = {rule for rule in coverage_page.RULES if not rule.startswith(("2.19-", "LB-"))}
    listed -= {rule for rule in listed if _OF_MACHINES.fullmatch(rule) or _OF_WEBHOOKS.fullmatch(rule)}
    assert listed == _extension_rules() | _kind_rules() | _dns_rules()


def test_rules_of_machines_are_those_of_the_contract() -> None:
    if not CONTRACT.is_dir():
        pytest.skip("the contract to compare with is not here")
    text = (CONTRACT / "worker-machine.md").read_text()
    named = {
        *re.findall(r"^(?:\*|\d+\.) \*\*([A-D]\d+-R\d+)\*\*", text, re.MULTILINE),
        *re.findall(r"^## ([A-D]\d+)\. ", text, re.MULTILINE),
        *re.findall(r"^\| (L\d+) \|", text, re.MULTILINE),
        *re.findall(r"^### (AP1\.\d) ", text, re.MULTILINE),
    }
    assert {rule for rule in coverage_page.RULES if _OF_MACHINES.fullmatch(rule)} <= named


def test_rules_of_webhooks_are_those_of_the_contract() -> None:
    if not CONTRACT.is_dir():
        pytest.skip("the contract to compare with is not here")
    text = (CONTRACT / "webhooks.md").read_text()
    processes = _between(text, "## 4.1 ", "## 4.6 ")  # the rest is about other programs
    named = {
        *re.findall(r"^\| (AD-\d+) \|", text, re.MULTILINE),
        *(f"W{rule}" for rule in re.findall(r"^\| (P-\d+) \|", processes, re.MULTILINE)),
        *(f"WA-{number}" for number in re.findall(r"^## A\.(\d+) ", text, re.MULTILINE)),
        # Other chapters have rules W-1, F-1 and P-1 of their own.
        *(f"W{rule}" for rule in re.findall(r"^\| ([WF]-\d+) \|", text, re.MULTILINE)),
    }
    assert {rule for rule in coverage_page.RULES if _OF_WEBHOOKS.fullmatch(rule)} == named


def _extension_rules() -> set[str]:
    text = (CONTRACT / "extensions.md").read_text()
    ours = _between(text, "# 1. ", "## 2.4 ")
    named = set(re.findall(r"^(?:\* |\| )([A-Z]-\d+) ", ours, re.MULTILINE))
    for table, until in (("C.5", "## C.6"), ("C.6", "# Appendix D")):
        rows = re.findall(r"^\| (?!annotation|#|-)", _between(text, f"## {table} ", until), re.MULTILINE)
        named |= {f"{table}-{number}" for number in range(1, len(rows) + 1)}
    return named


def _kind_rules() -> set[str]:
    text = (CONTRACT / "extensions.md").read_text()
    chapters = "".join(
        _between(text, f"## {chapter} ", "## ")
        for chapter in ("2.4", "2.5", "2.6", "2.7", "2.8", "2.10", "2.12", "2.13", "2.14", "2.15")
    )
    limitations = _between(text, "# Appendix B", "# Appendix C")
    return {
        *re.findall(r"^\* ([A-Z]{1,2}-\d+) ", chapters, re.MULTILINE),
        *re.findall(r"^## (A\.\d+) ", text, re.MULTILINE),
        *(f"B.{number}" for number in re.findall(r"^(\d+)\. ", limitations, re.MULTILINE)),
        "C.1", "C.2", "C.3",
    }  # fmt: skip


def _dns_rules() -> set[str]:
    text = (CONTRACT / "dns.md").read_text()
    table = _between(text, "# 2. ", "# 3. ")
    return {
        *re.findall(r"^\* (DN-\d+) ", text, re.MULTILINE),
        *(f"DN-{number}" for number in re.findall(r"^\| (\d\d) \|", table, re.MULTILINE)),
        *re.findall(r"^\| (V\d+) \|", text, re.MULTILINE),
    }


def _between(text: str, start: str, end: str) -> str:
    return text.split(f"\n{start}", 1)[1].split(f"\n{end}", 1)[0]
