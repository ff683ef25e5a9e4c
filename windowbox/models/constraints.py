"""Constraints on versions such as `>= 1.32, < 1.35`, as Go's Masterminds/semver reads them. Pure."""

from __future__ import annotations

import re
from itertools import takewhile
from typing import NamedTuple

from windowbox.errors import Malformed

Version = tuple[int, int, int]

_NUMBER = r"(\d{1,9}|[xX*])"
_PARTS = rf"v?{_NUMBER}(?:\.{_NUMBER})?(?:\.{_NUMBER})?(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?"
_ONE = re.compile(rf"\s*(=|==|!=|>|<|>=|=>|<=|=<|~|~>|\^)?\s*{_PARTS}\s*(?:,\s*|(?=\s)|$)", re.ASCII)
_HYPHEN = re.compile(rf"({_PARTS})\s+-\s+({_PARTS})", re.ASCII)
_VERSION = re.compile(r"(\d{1,9})(?:\.(\d{1,9}))?(?:\.(\d{1,9}))?", re.ASCII)
_SUFFIX = re.compile(r"[-+~].*", re.DOTALL)
_FULL = re.compile(r"v?\d+\.\d+\.\d+", re.ASCII)
_SPELLINGS = {"": "=", "==": "=", "=>": ">=", "=<": "<=", "~>": "~"}


class _Term(NamedTuple):
    operator: str
    lowest: Version
    """The first version that is meant: of `1.32`, 1.32.0."""
    beyond: Version | None
    """The first version after it: of `1.32`, 1.33.0; None: `*`."""


def version(text: str) -> Version:
    """The numbers of a version, without what stands behind `-`, `+` or `~`. Malformed if it is none."""
    match = _VERSION.fullmatch(_SUFFIX.sub("", text.removeprefix("v")))
    if match is None:
        raise Malformed(f"{text!r:.80} is no version such as 1.32.4")
    return (int(match[1]), int(match[2] or 0), int(match[3] or 0))


def check(constraint: str) -> None:
    """Malformed if it is no constraint."""
    _alternatives(constraint)


def matches(constraint: str, found: Version) -> bool:
    """Whether the version meets all terms of one of the alternatives."""
    return any(all(_holds(term, found) for term in terms) for terms in _alternatives(constraint))


def is_exact(constraint: str) -> bool:
    """Whether it begins with `=` or with a full version, and so weighs more than others that match."""
    return constraint.startswith("=") or _FULL.match(constraint) is not None


def _alternatives(constraint: str) -> list[list[_Term]]:
    alternatives: list[list[_Term]] = []
    for text in constraint.split("||"):
        rest = _HYPHEN.sub(lambda match: f">={match[1]}, <={match[5]}", text.strip())
        terms: list[_Term] = []
        while rest and (match := _ONE.match(rest)):
            # Numbers after a wildcard mean nothing.
            known = takewhile(lambda part: part and part.isdecimal(), (match[2], match[3], match[4]))
            operator, numbers = match[1] or "", [int(part) for part in known]
            operator = _SPELLINGS.get(operator, operator)
            terms.append(_Term(operator, _padded(numbers), _beyond(operator, numbers)))
            rest = rest[match.end() :]
        if rest or not terms:
            raise Malformed(f"{constraint!r:.80} is no version constraint such as '>= 1.32, < 1.35'")
        alternatives.append(terms)
    return alternatives


def _beyond(operator: str, numbers: list[int]) -> Version | None:
    """The first version that a version with these numbers does not mean; None for a wildcard."""
    if not numbers:
        return None
    kept = len(numbers)
    if operator == "~":
        kept = min(kept, 2)
    elif operator == "^":
        # Up to the next change of the first number that is not zero.
        kept = next((place for place, number in enumerate(numbers, 1) if number), kept)
    return _padded([*numbers[: kept - 1], numbers[kept - 1] + 1])


def _padded(numbers: list[int]) -> Version:
    major, minor, patch = [*numbers, 0, 0, 0][:3]
    return (major, minor, patch)


def _holds(term: _Term, found: Version) -> bool:
    within = term.beyond is None or found < term.beyond
    match term.operator:
        case "!=":
            return not (term.lowest <= found and within)
        case ">":
            return not within
        case ">=":
            return found >= term.lowest
        case "<":
            return found < term.lowest
        case "<=":
            return within
        case _:
            return term.lowest <= found and within
