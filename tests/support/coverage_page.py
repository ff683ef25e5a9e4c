"""Makes docs/contract-coverage.md: which rule of the contract is shown by which test.

`python -m tests.support.coverage_page` writes it, from the ids of all tests that pytest collects.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.support import rules_list, rules_list_dns, rules_list_kinds, rules_list_lb
from tests.support.coverage_reasons import REASONS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "contract-coverage.md"
SECTIONS = rules_list.SECTIONS | rules_list_kinds.SECTIONS | rules_list_dns.SECTIONS | rules_list_lb.SECTIONS
RULES = frozenset(rule for section in SECTIONS.values() for rule in section)

Coverage = dict[str, dict[str, int]]
"""Of each rule the tests that name it, and how many of their cases do."""

# A rule stands at the beginning of a case's id, after "+", or after "-" where pytest joined two ids.
_NAMED = re.compile(
    r"(?:^|(?<=[+-]))"
    r"((?:BA|BB|BE|DN|HB|IG|SE|XT|[A-Z])-\d+|C\.[56]-\d+|[ABC]\.\d+|V\d+"
    r"|2\.19-(?:[a-z]+-)?[a-z]+|LB-\d+-[a-z0-9]+)"
    r"(?=$|[+-])"
)

_HEAD = """\
# Which test shows which rule

Gardener and its extensions agree on a contract: what an object means, when an extension acts on it, what it
reports. Each rule of it has an id. A test that shows a rule bears its id in its own, so that
`pytest -k DN-5` runs what there is about a rule.

Made by `make coverage-of-contract` from the tests themselves.
"""


def collected() -> list[str]:
    """The ids of all tests."""
    command = [sys.executable, "-m", "pytest", "-o", "addopts=", "--collect-only", "-q", "tests"]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    if answer.returncode != 0:
        raise RuntimeError(f"the tests cannot be collected:\n{answer.stdout[-4000:]}{answer.stderr[-2000:]}")
    return [line for line in answer.stdout.splitlines() if "::" in line]


def named(test: str) -> set[str]:
    """The rules that a test's id names, whether they exist or not."""
    _, bracket, case = test.partition("[")
    # Within the brackets only: the names of tests are sentences.
    return set(_NAMED.findall(case.removesuffix("]"))) if bracket else set()


def coverage(tests: Iterable[str]) -> Coverage:
    found: Coverage = {}
    for test in tests:
        function = test.partition("[")[0]
        for rule in named(test) & RULES:
            cases = found.setdefault(rule, {})
            cases[function] = cases.get(function, 0) + 1
    return found


def unknown(tests: Iterable[str]) -> dict[str, str]:
    """Rules that do not exist, with a test that names them: mostly a slip of the pen."""
    families = {_family(rule) for rule in RULES}
    return {rule: test for test in tests for rule in named(test) - RULES if _family(rule) in families}


def open_rules(covered: Coverage) -> list[str]:
    """Rules with neither a test nor a reason for having none."""
    return [rule for section in SECTIONS.values() for rule in section if rule not in covered | REASONS]


def page(covered: Coverage) -> str:
    missing = open_rules(covered)
    excused = len(RULES) - len(covered) - len(missing)
    sums = f"{len(RULES)} rules: {len(covered)} shown by tests, {excused} without a test for a reason"
    rest = f", {len(missing)} open ({', '.join(missing)})" if missing else ""
    parts = [_HEAD, f"{sums}{rest}.\n"]
    parts += [_section(title, rules, covered) for title, rules in SECTIONS.items()]
    return "\n".join(parts)


def main() -> None:
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(coverage(collected())))


def _family(rule: str) -> str:
    return "LB" if rule.startswith("LB-") else rule.rstrip("0123456789")


def _section(title: str, rules: Mapping[str, str], covered: Coverage) -> str:
    lines = [f"## {title}", "", "| Rule | | Shown by |", "|---|---|---|"]
    lines += [f"| {rule} | {words} | {_evidence(rule, covered)} |" for rule, words in rules.items()]
    return "\n".join([*lines, ""])


def _evidence(rule: str, covered: Coverage) -> str:
    if rule in covered:
        return "<br>".join(_link(test, cases) for test, cases in sorted(covered[rule].items()))
    return f"– {REASONS[rule]}" if rule in REASONS else "**open**"


def _link(test: str, cases: int) -> str:
    file, _, function = test.partition("::")
    words = function.removeprefix("test_").replace("_", " ")
    return f"[{words}](../{file})" + (f" ({cases} cases)" if cases > 1 else "")


if __name__ == "__main__":
    main()
