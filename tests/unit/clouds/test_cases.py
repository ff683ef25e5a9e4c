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


@cache
def _by_rule() -> dict[tuple[str, str], list[Case]]:
    found: dict[tuple[str, str], list[Case]] = defaultdict(list)
    for cloud in table.TYPES if _CASES.is_dir() else ():
        given, expected = (
            [json.loads(line) for line in (_CASES / f"{cloud}{suffix}").read_text().splitlines()]
            for suffix in (".jsonl", ".expected.jsonl")
        )
        for case, answer in zip(given, expected, strict=True):
            assert case["id"] == answer["id"]
            found[cloud, case["rule"]].append((case, answer))
    return found


@pytest.mark.skipif(not _CASES.is_dir(), reason="the cases with the answers of real extensions are not here")
@pytest.mark.parametrize(
    ("cloud", "rule"), [pytest.param(*key, id=f"{key[1]}+{key[0]}") for key in sorted(_by_rule())]
)
def test_answers_are_those_of_the_real_extension(cloud: str, rule: str) -> None:
    wrong = {}
    for case, expected in _by_rule()[cloud, rule]:
        found = cases.answer(table.cloud(cloud), case)
        if not _alike(found, expected):
            wrong[case["id"]] = {"expected": _short(expected), "found": _short(found)}

    assert wrong == {}


def _short(answer: dict[str, Any]) -> tuple[set[tuple[str, str]], set[str]]:
    errors = {(one["path"], one["type"]) for one in answer["errors"]}
    return errors, {json.dumps(one, sort_keys=True) for one in answer.get("changes", ())}


def _alike(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    """Where the extension names no field, a better error is welcome."""
    if any(not one["path"] for one in expected["errors"]):
        return bool(found["errors"])
    return _short(found) == _short(expected)
