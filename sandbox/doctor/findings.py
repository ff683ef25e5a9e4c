"""The result of a check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """One check: its subject, the result, and the remedy."""

    what: str
    verdict: Literal["ok", "note", "wrong"]
    said: str
    mend: str = ""
