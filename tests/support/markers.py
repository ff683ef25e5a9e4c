"""Secrets that nobody may find in what windowbox keeps, and the search for them in every spelling."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class Markers:
    """What nobody may find, each under the name of the place where it was put."""

    texts: dict[str, str] = field(default_factory=dict)

    def new(self, place: str) -> str:
        self.texts[place] = f"marker{secrets.token_hex(16)}"
        return self.texts[place]

    def in_(self, haystack: bytes) -> set[str]:
        return {
            place
            for place, text in self.texts.items()
            if any(needle in haystack for needle in _spellings(text.encode()))
        }


def _spellings(text: bytes) -> Iterator[bytes]:
    """The text, and what base64 makes of it wherever in a longer text it stands; and once more."""
    yield text
    for once in _in_base64(text):
        yield once
        yield from _in_base64(once)


def _in_base64(text: bytes) -> Iterator[bytes]:
    for offset in range(3):
        encoded = base64.b64encode(b"\0" * offset + text)
        # Only the characters that depend on nothing but the text.
        yield encoded[-(-offset * 8 // 6) : (offset + len(text)) * 8 // 6]
