"""What an examination finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at, and what to do about it."""

    what: str
    verdict: Literal["ok", "note", "wrong"]
    said: str
    mend: str = ""
