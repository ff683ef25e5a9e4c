"""Compares quantities of Kubernetes by value: `1000m` equals `1`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from windowbox.models.objects import Json

_PATTERN = re.compile(
    r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:([KMGTPE]i)|([numkMGTPE])|[eE]([+-]?\d{1,3}))?", re.ASCII
)
_LONGEST = 100
_BINARY: dict[str, int] = {f"{letter}i": 1024 ** (at + 1) for at, letter in enumerate("KMGTPE")}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


def spelled(found: Json, wanted: Mapping[str, str]) -> dict[str, Any]:
    """The wanted quantities, in the spelling of the found ones where both have the same value."""
    return {
        name: found[name] if name in found and value(found[name]) == value(one) else one
        for name, one in wanted.items()
    }


def value(quantity: object) -> Decimal | None:
    """The number that a quantity stands for; None if it is not a quantity."""
    text = str(quantity)
    if isinstance(quantity, bool) or len(text) > _LONGEST or not (found := _PATTERN.fullmatch(text)):
        return None
    number, binary, decimal, exponent = found.groups()
    if binary:
        return Decimal(number) * _BINARY[binary]
    return Decimal(number).scaleb(_DECIMAL[decimal] if decimal else int(exponent or 0))
