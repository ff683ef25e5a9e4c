"""Which rule of the contract is shown by which test, from the ids of all tests that pytest collects.

`python -m tests.support.coverage_page` writes docs/contract-coverage.md; with the beginning of a rule's id as
argument it prints the tests of these rules instead.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "contract-coverage.md"
_DATA = Path(__file__).parent
SECTIONS: dict[str, dict[str, str]] = yaml.safe_load((_DATA / "rules.yaml").read_text())
REASONS: dict[str, str] = {
    rule: reason
    for reason, rules in yaml.safe_load((_DATA / "rules_without_tests.yaml").read_text()).items()
    for rule in rules
}
RULES = frozenset(rule for section in SECTIONS.values() for rule in section)

Coverage = dict[str, dict[str, int]]
"""For each rule, the tests that name it, and the number of their cases that do."""

# A rule stands at the beginning of a case's id, after "+", or after "-" where pytest joined two ids.
_NAMED = re.compile(
    r"(?:^|(?<=[+-]))"
    r"((?:ALL|ALI|AWS|AZU|EQX|GCP|OST)-[A-Z]?\d+|(?:AD|BA|BB|BE|DN|HB|HC|IG|IV|SE|WA|WF|WP|WW|XT|[A-Z])-\d+|C\.[56]-\d+|[ABC]\.\d+|V\d+|AP1\.\d"
    r"|[A-D]\d+(?:-R\d+)?|L\d+"
    r"|2\.19-(?:[a-z]+-)?[a-z]+|LB-\d+-[a-z0-9]+)"
    r"(?=$|[+-])"
)

_OF_MACHINES = re.compile(r"[A-D]\d+(-R\d+)?|L\d+")

_HEAD = """\
# Contract coverage

Which rules of Gardener's contract with an extension do tests show, and which rules have no test, and why?
The *contract* is what Gardener documents, and what its code does: what an object means, when an extension
acts on it, what it reports. A test that shows a rule has the rule's id in its own id.

```console
$ make coverage-of-contract                  # update this page, from the tests themselves
$ make coverage-of-contract RULES=LB-7       # print the tests of all rules LB-7…; RULES=. prints everything
$ python -m pytest -k DN-5                   # run the tests of one rule
```

| Ids | Subject |
|---|---|
| `S-1`, `DN-5`, `BA-1` … | extension objects and their kinds |
| `LB-…` | load balancers, as in cloud-controller-manager-local and Kubernetes' service controller |
| `LB-<subject>-…` | 1 selection, 2 reconcile, 3 Events, 4 predicates, 5 nodes, 6 work queue |
| | 7 fields of a Service, 8 names and labels, 10 routes, 11 defects of other implementations, 15 Envoy |
| `V1` … | test vectors for DNS |
| `A1` … `C15-R4` | machines: A the Worker, B the driver, C MachineDeployments and MachineSets |
| `L1` … | limitations of the Go programs that windowbox lifts |
| `WW-…`, `WF-…` | webhooks, and what they have in common |
| `AD-…`, `WA-…` | admission in the garden, and examples of AdmissionReviews |
| `WP-…` | processes, and how they are registered |
| `ALL-…` | what six clouds share |
| `AWS-…`, `GCP-…` … | one cloud; the letter after its name says what the rule is about: |
| | S Secret, P CloudProfile, N network, I infrastructure, U its update, R what it needs, C control plane, |
| | W workers, M mutation, B backup, X other |
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
    """Rules that do not exist, with a test that names them: usually a typo."""
    families = {_family(rule) for rule in RULES}
    return {rule: test for test in tests for rule in named(test) - RULES if _family(rule) in families}


def open_rules(covered: Coverage) -> list[str]:
    """Rules with neither a test nor a reason for having none."""
    return [rule for section in SECTIONS.values() for rule in section if rule not in covered | REASONS]


def page(covered: Coverage) -> str:
    """The page: rules of each chapter in numbers, then each rule without a test."""
    missing = open_rules(covered)
    excused = len(RULES) - len(covered) - len(missing)
    rows = [
        f"| {title} | {len(rules)} | {len(rules.keys() & covered.keys())} |"
        for title, rules in SECTIONS.items()
    ]
    unshown = [
        f"| {rule} | {words} | {REASONS.get(rule, '**open**')} |"
        for rules in SECTIONS.values()
        for rule, words in rules.items()
        if rule not in covered
    ]
    sums = f"{len(RULES)} rules: {len(covered)} shown by tests, {excused} without a test for a reason"
    rest = f", {len(missing)} open ({', '.join(missing)})" if missing else ""
    return "\n".join(
        [
            _HEAD,
            "## Chapters\n",
            f"{sums}{rest}.\n",
            "| Chapter | Rules | Shown by tests |",
            "|---|---|---|",
            *rows,
            "\n## Rules without a test\n",
            "| Rule | Subject | Reason |",
            "|---|---|---|",
            *unshown,
            "",
        ]
    )


def listing(covered: Coverage, prefix: str) -> str:
    """The tests of each rule whose id begins with `prefix`; "." stands for all rules."""
    lines = []
    for rules in SECTIONS.values():
        for rule, words in rules.items():
            if prefix != "." and not rule.startswith(prefix):
                continue
            lines.append(f"{rule}  {words}")
            tests = sorted(covered.get(rule, {}).items())
            lines += [f"    {test}" + (f"  ({cases} cases)" if cases > 1 else "") for test, cases in tests]
            if not tests:
                lines.append(f"    no test: {REASONS.get(rule, 'open')}")
    return "\n".join(lines)


def main() -> None:
    covered = coverage(collected())
    if len(sys.argv) > 1:
        print(listing(covered, sys.argv[1]))
    else:
        PAGE.write_text(page(covered))


def _family(rule: str) -> str:
    if _OF_MACHINES.fullmatch(rule):
        return rule  # not all of them are listed
    return "LB" if rule.startswith("LB-") else rule.rstrip("0123456789")


if __name__ == "__main__":
    main()
