"""The six walks of docs/architecture.md name files and functions that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
_TEXT = (ROOT / "docs" / "architecture.md").read_text()
_WALKS = _TEXT.split("## Six walks through the code")[1].split("\n## ")[0]
STEPS = re.findall(r"`([\w/]+\.py)`\s+`(\w+)`", _WALKS)


def test_there_are_six_walks() -> None:
    assert len(re.findall(r"^### ", _WALKS, re.MULTILINE)) == 6
    assert len(STEPS) > 30


@pytest.mark.parametrize(("file", "name"), STEPS, ids=lambda part: part)
def test_each_step_exists(file: str, name: str) -> None:
    tree = ast.parse((ROOT / file).read_text())
    defined = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert name in defined
