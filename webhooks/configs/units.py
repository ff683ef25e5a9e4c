"""Unit files of systemd: read and written again in the order of their sections."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

_LINE_LIMIT = 2048
"""systemd would cut lines of so many bytes off."""

_SPACE = "\t\n\v\f\r \x85\xa0"


class BadUnit(Exception):
    """systemd could not read the unit as it is meant."""


def normalised(text: str) -> str:
    """The unit with each section once, no comments, a blank line between sections."""
    sections: dict[str, list[str]] = {}
    for section, name, value in _Lexer(text).options():
        sections.setdefault(section, []).append(f"{name}={value}\n")
    return "\n".join(f"[{name}]\n{''.join(options)}" for name, options in sections.items())


class _Lexer:
    def __init__(self, text: str) -> None:
        if any(len(line.encode(errors="replace")) >= _LINE_LIMIT for line in text.split("\n")):
            raise BadUnit(f"a line has {_LINE_LIMIT} bytes or more")
        self._text = text
        self._at = 0

    def options(self) -> Iterator[tuple[str, str, str]]:
        section = None
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == "[":
                section = self._section()
            elif char in "#;":
                self._skip_comment()
            elif section is not None and not _is_space(char):
                yield (section, self._name(), self._value())
            else:
                self._at += 1

    def _section(self) -> str:
        end = self._text.find("]", self._at)
        if end < 0:
            raise BadUnit("a section's name has no end")
        name = self._text[self._at + 1 : end]
        self._at = end + 1
        if garbage := _stripped(self._line()):
            raise BadUnit(f"after the name of section {name!r:.50} stands {garbage!r:.50}")
        return name

    def _skip_comment(self) -> None:
        while self._at < len(self._text):
            if not self._line().removesuffix(" ").endswith("\\"):
                return

    def _name(self) -> str:
        line = self._text[self._at : self._line_end()]
        name, equals, _ = line.partition("=")
        if not equals or "\r" in name:
            raise BadUnit(f"the line {_stripped(line)!r:.50} has no =")
        self._at += len(name) + 1
        return _stripped(name)

    def _value(self) -> str:
        value = ""
        while True:
            line = self._line()
            continued = bool(_stripped(line)) and line.endswith("\\")
            value += line if _stripped(line) else ""
            if not continued:
                break
            value += "\n"
        return _stripped(value) + ("\n" if value.endswith("\n") else "")

    def _line_end(self) -> int:
        end = self._text.find("\n", self._at)
        return end if end >= 0 else len(self._text)

    def _line(self) -> str:
        """The rest of the line; the next one begins after it."""
        end = self._line_end()
        line, ended = self._text[self._at : end], end == len(self._text)
        self._at = end if ended else end + 1
        return line.removesuffix("\r") if ended else line


def _is_space(char: str) -> bool:
    return char in _SPACE or unicodedata.category(char) in ("Zs", "Zl", "Zp")


def _stripped(text: str) -> str:
    start, end = 0, len(text)
    while start < end and _is_space(text[start]):
        start += 1
    while end > start and _is_space(text[end - 1]):
        end -= 1
    return text[start:end]
