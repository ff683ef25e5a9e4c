"""Regular expressions see what tenants write: each takes linear time, whatever the text is."""

from __future__ import annotations

import importlib
import itertools
import re
import time
from pathlib import Path
from typing import Any

import pytest

TOP = Path(__file__).parents[2]
PACKAGES = (
    "bus",
    "clouds",
    "commands",
    "patchers",
    "sandbox",
    "ui",
    "watchers",
    "webhooks",
    "windowbox",
    "workers",
)
NOT_FOREIGN = (
    "sandbox",  # our own programs and files
    "commands",  # what the user types
    "windowbox.models.constraints",  # of the image vector, which the operator writes
    "windowbox.settings.bussettings",  # credentials files, which the operator writes
)
UNITS = (
    "1", "a", "A", " ", "-", ".", ":", "_", "/", "\\", '"', "[", "{", "1.", "1-", "1 - ", ":1", "a.", "a-",
    '\\"', "https://", "-----BEGIN CERTIFICATE-----", "error during apply of object ", "_windowbox-a.",
    "provider-", "shoot-machine-pods-", "1ms", "1.1", "==", "EOF\n", "\n", "$`", "=4", "0x",
)  # fmt: skip
SIZE = 4000
BOUNDED = {
    "windowbox.models.durations._PART": "after 99 characters nothing is read",
}
"""Patterns that are searched for in short texts only."""


def patterns() -> list[Any]:
    found = []
    for file in sorted(one for package in PACKAGES for one in (TOP / package).rglob("*.py")):
        module, source = ".".join(file.relative_to(TOP).with_suffix("").parts), file.read_text()
        for name in re.findall(r"^(\w+) = re\.compile", source, re.MULTILINE):
            if not module.startswith(NOT_FOREIGN) and f"{module}.{name}" not in BOUNDED:
                pattern = getattr(importlib.import_module(module), name)
                uses = set(re.findall(rf"\b{name}\.(fullmatch|match|search|sub|findall|finditer)\(", source))
                found.append(pytest.param(pattern, uses or {"fullmatch"}, id=f"{module}.{name}"))
    return found


def seconds(pattern: re.Pattern[Any], use: str, text: str) -> float:
    subject: Any = text.encode() if isinstance(pattern.pattern, bytes) else text
    arguments = (type(subject)(), subject) if use == "sub" else (subject,)
    begun = time.process_time()
    found = getattr(pattern, use)(*arguments)
    if use == "finditer":
        list(found)
    return time.process_time() - begun


@pytest.mark.parametrize(("pattern", "uses"), patterns())
def test_a_pattern_takes_linear_time(pattern: re.Pattern[Any], uses: set[str]) -> None:
    for use, unit, end in itertools.product(uses, UNITS, ("", "!")):
        short, long = (unit * (size // len(unit)) + end for size in (SIZE, 8 * SIZE))
        # A quadratic one takes 64 times as long for the long text. The noise of a busy machine passes.
        for _ in range(3):
            took = seconds(pattern, use, long)
            if took < 0.02 or took < 24 * seconds(pattern, use, short):
                break
        else:
            pytest.fail(f"{use} of {unit!r} repeated: {took:.3f} s")
