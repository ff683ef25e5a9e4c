"""Rewrites unit files of systemd as go-systemd does: parsed, and written again section by section."""

from __future__ import annotations

from collections.abc import Iterator

_LINE_LIMIT = 2048
"""systemd would cut lines of so many bytes off."""

# As Go's unicode.IsSpace has it; Python's own set contains four separators more.
_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))


class BadUnit(Exception):
    """systemd could not read the unit as it is meant."""


def normalised(text: str) -> str:
    """The unit with each section once, no comments, and a blank line between sections."""
    if any(len(line.encode(errors="replace")) >= _LINE_LIMIT for line in text.split("\n")):
        raise BadUnit(f"a line has {_LINE_LIMIT} bytes or more")
    sections: dict[str, list[str]] = {}
    for section, name, value in _Lexer(text).options():
        sections.setdefault(section, []).append(f"{name}={value}\n")
    return "\n".join(f"[{name}]\n{''.join(options)}" for name, options in sections.items())


class _Lexer:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def options(self) -> Iterator[tuple[str, str, str]]:
        """Section, name and value of each option, in order."""
        section = None
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == "[":
                end = self._text.find("]", self._at)
                if end < 0:
                    raise BadUnit("a section's name has no end")
                section = self._text[self._at + 1 : end]
                self._at = end + 1
                if garbage := self._line().strip(_SPACE):
                    raise BadUnit(f"after the name of section {section!r:.50} stands {garbage!r:.50}")
            elif char in "#;":
                while self._at < len(self._text) and self._line().removesuffix(" ").endswith("\\"):
                    pass  # a comment that ends in a backslash goes on
            elif section is not None and char not in _SPACE:
                line = self._text[self._at : self._line_end()]
                name, equals, _ = line.partition("=")
                if not equals or "\r" in name:
                    raise BadUnit(f"the line {line.strip(_SPACE)!r:.50} has no =")
                self._at += len(name) + 1
                value, continued = "", True
                while continued:  # continued lines belong to the value as they are written
                    line = self._line()
                    if filled := bool(line.strip(_SPACE)):
                        value += line
                    if continued := filled and line.endswith("\\"):
                        value += "\n"
                ending = "\n" if value.endswith("\n") else ""
                yield section, name.strip(_SPACE), value.strip(_SPACE) + ending
            else:
                self._at += 1

    def _line(self) -> str:
        """The rest of the line; the next one begins after it."""
        end = self._line_end()
        line, ended = self._text[self._at : end], end == len(self._text)
        self._at = end if ended else end + 1
        return line.removesuffix("\r") if ended else line

    def _line_end(self) -> int:
        end = self._text.find("\n", self._at)
        return end if end >= 0 else len(self._text)
