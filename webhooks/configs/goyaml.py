"""YAML as Go's library reads and writes it: what one side wrote, the other does not change."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import cmp_to_key
from typing import Any

import yaml

_DEEPEST = 64

_CONSTANTS: dict[str, bool | None] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
}
_NO_NUMBER = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_INTEGER = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|0[oO]?[0-7]+|0[bB][01]+|0|[1-9][0-9]*)", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_SEXAGESIMAL = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?", re.ASCII)
_OTHER_BREAKS = frozenset("\x85\u2028\u2029")
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt ][0-9]{1,2}:.*)?", re.ASCII)
_LONGEST_NUMBER = 400
_PREFIX = "tag:yaml.org,2002:"
_TAGGED: dict[str | None, type | tuple[type, ...]] = {
    f"{_PREFIX}bool": bool,
    f"{_PREFIX}int": int,
    f"{_PREFIX}float": (int, float),
    f"{_PREFIX}null": type(None),
}


class NotYaml(Exception):
    """The text is no YAML, or more of it than a configuration file needs."""


def load(text: str) -> object:
    """The first document of a text, without aliases; of keys given twice the last one counts."""
    try:
        return _Builder().document(yaml.parse(text, Loader=yaml.CSafeLoader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        raise NotYaml(f"{where}{getattr(error, 'problem', None) or 'unreadable characters'}") from error
    except UnicodeError as error:
        raise NotYaml("not valid UTF-8") from error


def dump(value: object) -> str:
    """Mappings in the order of Go's library, lists not indented, strings quoted where they must be."""
    text: str = yaml.serialize(_node(value), Dumper=_Dumper, allow_unicode=True)
    return text.removesuffix("...\n")


def resolved(text: str) -> object:
    """What a scalar without quotes means."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if len(text) > _LONGEST_NUMBER or not (text[0].isdigit() or text[0] in "+-."):
        return text
    plain = text.replace("_", "")
    if _INTEGER.fullmatch(plain):
        number = _integer(plain)
        if -(2**63) <= number < 2**64:
            return number
    if _NO_NUMBER.fullmatch(text):
        raise NotYaml(f"{text} is no number that JSON has")
    amount = float(plain) if _FLOAT.fullmatch(plain) else math.inf
    return amount if math.isfinite(amount) else text


class _Dumper(yaml.CSafeDumper):
    """Writes scalars in the style that their nodes say."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012


class _Builder:
    """Makes values of the events of a parser; no recursion, which the text could drive too deep."""

    def __init__(self) -> None:
        self._open: list[tuple[list[object], bool]] = []
        self._root: list[object] = []

    def document(self, events: Iterable[yaml.Event]) -> object:
        for event in events:
            match event:
                case yaml.ScalarEvent():
                    self._put(_scalar(event))
                case yaml.AliasEvent():
                    # A few lines of them can stand for more than fits in memory.
                    raise NotYaml("aliases are not supported")
                case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                    if len(self._open) == _DEEPEST:
                        raise NotYaml(f"nested deeper than {_DEEPEST} levels")
                    self._open.append(([], isinstance(event, yaml.MappingStartEvent)))
                case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                    content, is_mapping = self._open.pop()
                    self._put(_mapping(content) if is_mapping else content)
                case yaml.DocumentEndEvent():
                    break
        return self._root[0] if self._root else None

    def _put(self, value: object) -> None:
        (self._open[-1][0] if self._open else self._root).append(value)


def _scalar(event: yaml.ScalarEvent) -> object:
    if event.tag in (None, "!") and event.implicit[0]:
        return resolved(event.value)
    if event.tag in (None, "!", f"{_PREFIX}str"):
        return event.value
    value = resolved(event.value)
    if isinstance(value, _TAGGED.get(event.tag, ())):
        return value
    raise NotYaml(f"tag {event.tag!r:.50} is not supported")


def _mapping(content: list[object]) -> dict[str, object]:
    made: dict[str, object] = {}
    for key, value in zip(content[::2], content[1::2], strict=True):
        if key == "<<" or not isinstance(key, str | int | float):
            raise NotYaml(f"{key!r:.50} is not supported as a key")
        made[key if isinstance(key, str) else _plain(key)] = value
    return made


def _integer(text: str) -> int:
    sign, digits = (-1, text[1:]) if text[0] == "-" else (1, text.lstrip("+"))
    if len(digits) > 1 and digits[0] == "0" and digits[1].isdigit():
        return sign * int(digits, 8)
    return sign * int(digits, 0)


def _node(value: object) -> yaml.Node:
    match value:
        case Mapping():
            pairs = [(_string(key), _node(value[key])) for key in sorted(value, key=_ORDER)]
            return yaml.MappingNode(f"{_PREFIX}map", pairs, flow_style=not pairs)
        case list() | tuple():
            return yaml.SequenceNode(f"{_PREFIX}seq", [_node(one) for one in value], flow_style=not value)
        case str():
            return _string(value)
        case _:
            return yaml.ScalarNode(f"{_PREFIX}str", _plain(value))


def _string(text: str) -> yaml.ScalarNode:
    plain = _stays_text(text) and not _OTHER_BREAKS & set(text)
    style = "|" if "\n" in text else None if plain else '"'
    return yaml.ScalarNode(f"{_PREFIX}str", text, style=style)


def _stays_text(text: str) -> bool:
    return (
        not _NO_NUMBER.fullmatch(text)
        and resolved(text) is text
        and not _SEXAGESIMAL.fullmatch(text)
        and not _DATE.fullmatch(text)
    )


def _plain(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float() if value.is_integer() and abs(value) < 2**63:
            return str(int(value))
        case _:
            return repr(value)


def _compared(one: str, other: str) -> int:
    """Letters come after all else, and numbers by their value."""
    for at, (a, b) in enumerate(zip(one, other, strict=False)):
        if a == b:
            continue
        if a.isalpha() or b.isalpha():
            return _sign(a < b) if a.isalpha() and b.isalpha() else _sign(b.isalpha())
        (m, m_length), (n, n_length) = _number(one, at), _number(other, at)
        if "0" in (a, b) and one[:at].rstrip("0")[-1:].isdigit():
            m, n = (int(f"1{one[at : at + m_length]}"), int(f"1{other[at : at + n_length]}"))
        if m != n:
            return _sign(m < n)
        return _sign(m_length < n_length) if m_length != n_length else _sign(a < b)
    return len(one) - len(other)


def _number(text: str, at: int) -> tuple[int, int]:
    digits = re.compile(r"[0-9]{0,18}").match(text, at)
    assert digits is not None
    return int(digits[0] or 0), len(digits[0])


def _sign(less: bool) -> int:
    return -1 if less else 1


_ORDER = cmp_to_key(_compared)
