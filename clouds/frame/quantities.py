"""Quantities of Kubernetes, such as `100m` and `4Gi`, and durations of Go."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated

from pydantic import BeforeValidator

from clouds.frame.decoding import Struct
from windowbox.errors import Malformed
from windowbox.models import durations

_QUANTITY = re.compile(
    r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)([KMGTPE]i|[numkMGTPE])?", re.ASCII
)
_FACTORS = {name: Decimal(1024) ** i for i, name in enumerate(("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))}
_FACTORS |= {name: Decimal(1000) ** (i - 3) for i, name in enumerate(["n", "u", "m", "", *"kMGTPE"])}


def _quantity(given: object) -> str:
    text = "0" if given is None else str(given)
    if (
        isinstance(given, bool)
        or not isinstance(given, str | int | float | None)
        or not _QUANTITY.fullmatch(text)
    ):
        raise ValueError("is no quantity such as 100m or 4Gi")
    return text


Quantity = Annotated[str, BeforeValidator(_quantity)]


def amount(quantity: str) -> Decimal:
    """Malformed if it is none."""
    found = _QUANTITY.fullmatch(quantity)
    if found is None:
        raise Malformed(f"{quantity!r:.50} is no quantity such as 100m or 4Gi")
    return (Decimal(found[1]) * _FACTORS[found[2] or ""]).normalize()


def is_negative(quantity: str) -> bool:
    return quantity.startswith("-") and not is_zero(quantity)


def is_zero(quantity: str) -> bool:
    return not re.search(r"[1-9]", re.split(r"[eE]|[a-zA-Z]", quantity)[0])


def negative(capacity: Mapping[str, str], *names: str) -> list[str]:
    """Those of these resources whose quantity is negative."""
    return [name for name in names if is_negative(capacity.get(name, "0"))]


class NodeTemplate(Struct):
    """What machines of a pool have, for an autoscaler that has none to look at."""

    capacity: dict[str, Quantity] = {}


def _duration(given: object) -> float:
    text = "0s" if given is None else given
    if not isinstance(text, str):
        raise ValueError("is no duration such as 24h")
    sign, amount = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    found = 0.0 if amount == "0" else durations.seconds(amount)
    if found is None:
        raise ValueError("is no duration such as 24h")
    return sign * found


Duration = Annotated[float, BeforeValidator(_duration)]
"""In seconds."""
