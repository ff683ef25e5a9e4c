"""Thousands of cases, each with the answer of the real extension."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from clouds import cases, table

_CASES = Path(__file__).parents[4] / "shared" / "clouds"

Case = tuple[dict[str, Any], dict[str, Any]]

_RULES = {
    "alicloud": """
        ALI-C ALI-I1 ALI-I2 ALI-I3 ALI-I4 ALI-I5 ALI-I6 ALI-M1 ALI-M2 ALI-M3 ALI-N1 ALI-N2 ALI-N3 ALI-P1
        ALI-P2 ALI-P3 ALI-S1 ALI-S2 ALI-S3 ALI-U1 ALI-U2 ALI-W1 ALI-W2 ALI-W3 ALI-W4 ALI-W5 ALL-4 ALL-5
        ALL-6 ALL-8 ALL-Z1 GEN
    """,
    "aws": """
        ALL-1 ALL-4 ALL-5 ALL-6 ALL-7 ALL-8 ALL-Z1 AWS-C AWS-I1 AWS-I10 AWS-I11 AWS-I2 AWS-I3 AWS-I4
        AWS-I5 AWS-I6 AWS-I7 AWS-I8 AWS-I9 AWS-N1 AWS-N2 AWS-N3 AWS-P1 AWS-P2 AWS-P3 AWS-S1 AWS-S2
        AWS-S3 AWS-U1 AWS-U2 AWS-U3 AWS-W1 AWS-W2 AWS-W3 AWS-W4 AWS-W5 AWS-W6 AWS-WC AWS-X8 GEN
    """,
    "azure": """
        ALL-1 ALL-4 ALL-5 ALL-6 ALL-7 ALL-8 ALL-Z1 AZU-C AZU-I1 AZU-I10 AZU-I11 AZU-I12 AZU-I13 AZU-I14
        AZU-I2 AZU-I3 AZU-I4 AZU-I5 AZU-I6 AZU-I7 AZU-I8 AZU-I9 AZU-N1 AZU-N2 AZU-N3 AZU-P1 AZU-P2
        AZU-P3 AZU-S1 AZU-S2 AZU-S3 AZU-S4 AZU-U1 AZU-U2 AZU-U3 AZU-U4 AZU-U5 AZU-U6 AZU-U7 AZU-W1
        AZU-W2 AZU-W3 AZU-W4 AZU-WC AZU-X2 GEN
    """,
    "equinixmetal": """
        EQX-C1 EQX-I1 EQX-P2 EQX-S1 EQX-W1 EQX-W2 EQX-W3 GEN
    """,
    "gcp": """
        ALL-1 ALL-4 ALL-5 ALL-6 ALL-7 ALL-8 ALL-Z1 GCP-B1 GCP-B2 GCP-B3 GCP-C1 GCP-C2 GCP-I1 GCP-I11
        GCP-I2 GCP-I3 GCP-I4 GCP-I5 GCP-I6 GCP-I7 GCP-I8 GCP-I9 GCP-N1 GCP-P1 GCP-S1 GCP-S2 GCP-U1
        GCP-U2 GCP-U3 GCP-U4 GCP-W1 GCP-W10 GCP-W11 GCP-W12 GCP-W13 GCP-W2 GCP-W3 GCP-W4 GCP-W5 GCP-W6
        GCP-W7 GCP-W8 GCP-W9 GCP-WC GCP-X3 GEN
    """,
    "openstack": """
        ALL-1 ALL-4 ALL-5 ALL-6 ALL-7 ALL-8 ALL-Z1 GEN OST-C1 OST-C3 OST-C4 OST-C5 OST-C6 OST-C8 OST-C9
        OST-I1 OST-I2 OST-I3 OST-I4 OST-I5 OST-I6 OST-N1 OST-P OST-P1 OST-P2 OST-P3 OST-P4 OST-P5 OST-P6
        OST-P7 OST-P8 OST-S1 OST-S2 OST-S3 OST-S4 OST-U1 OST-U2 OST-W1 OST-W2 OST-W3 OST-W4 OST-W5
        OST-W6 OST-W7 OST-WC OST-X1
    """,
}
"""Of each cloud, the rules that cases are about. `GEN`: a good object with one change."""

needs_cases = pytest.mark.skipif(
    not _CASES.is_dir(), reason="the cases with the answers of real extensions are not here"
)


def read(cloud: str) -> list[Case]:
    """The cases of a cloud, with their answers."""
    given, expected = (
        [json.loads(line) for line in (_CASES / f"{cloud}{suffix}").read_text().splitlines()]
        for suffix in (".jsonl", ".expected.jsonl")
    )
    assert [one["id"] for one in given] == [one["id"] for one in expected]
    return [*zip(given, expected, strict=True)]


@cache
def _by_rule() -> dict[tuple[str, str], list[Case]]:
    found: dict[tuple[str, str], list[Case]] = defaultdict(list)
    for cloud in table.TYPES:
        for case, answer in read(cloud):
            found[cloud, case["rule"]].append((case, answer))
    return found


@needs_cases
@pytest.mark.parametrize(
    ("cloud", "rule"),
    [
        pytest.param(cloud, rule, id=f"{rule}+{cloud}")
        for cloud in table.TYPES
        for rule in _RULES[cloud].split()
    ],
)
def test_answers_are_those_of_the_real_extension(cloud: str, rule: str) -> None:
    wrong = {}
    for case, expected in _by_rule()[cloud, rule]:
        found = cases.answer(table.cloud(cloud), case)
        if not _alike(found, expected):
            wrong[case["id"]] = {"expected": _short(expected), "found": _short(found)}

    assert wrong == {}


@needs_cases
def test_no_case_is_left_out() -> None:
    """Ids of tests name rules also where the cases are not: the coverage page reads them."""
    assert _by_rule().keys() == {(cloud, rule) for cloud in table.TYPES for rule in _RULES[cloud].split()}


def _short(answer: dict[str, Any]) -> tuple[set[tuple[str, str]], set[str]]:
    errors = {(one["path"], one["type"]) for one in answer["errors"]}
    return errors, {json.dumps(one, sort_keys=True) for one in answer.get("changes", ())}


def _alike(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    """Where the extension names no field, a better error is welcome."""
    if any(not one["path"] for one in expected["errors"]):
        return bool(found["errors"])
    return _short(found) == _short(expected)
