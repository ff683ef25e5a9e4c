"""Objects that documents call existing: the kinds of a cloud, and their properties as people write them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from ipaddress import ip_address, ip_network
from typing import Any

from clouds.frame.inventory import CloudObject
from windowbox.errors import Malformed

Form = Callable[[str], Any]
"""The value of a property, from its text; ValueError, with the form in words, if it has another form."""
Kinds = Mapping[str, Mapping[str, Form]]
"""The kinds of a cloud, each with its properties and their forms."""

IMAGE, RESERVATION = "image", "reservation"
OF_ALL: Kinds = {IMAGE: {}}
"""What every cloud has: images that no CloudProfile lists."""

_LONGEST_ID, _LONGEST = 300, 1_000
_NAME = re.compile(r"[a-z0-9-]+")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def cidr(text: str) -> str:
    try:
        return str(ip_network(text))
    except ValueError as error:
        raise ValueError("a range such as 10.0.0.0/16, without bits behind the prefix") from error


def address(text: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError as error:
        raise ValueError("an address such as 203.0.113.7") from error


def addresses(text: str) -> list[str]:
    """Addresses between commas; none if the text is empty."""
    return [address(one) for one in text.split(",")] if text else []


def truth(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("true or false")
    return text == "true"


def text(text: str) -> str:
    if not text or len(text) > _LONGEST or _UNPRINTABLE.search(text):
        raise ValueError(f"a text of 1 to {_LONGEST} printable characters")
    return text


def names(text: str) -> list[str]:
    """Names between commas."""
    if len(text) > _LONGEST or not all(_NAME.fullmatch(one) for one in text.split(",")):
        raise ValueError("names with commas between them, such as eu-central-1a,eu-central-1b")
    return text.split(",")


def described(kinds: Kinds, kind: str, id_: str, given: Iterable[str], *, shared: bool) -> CloudObject:
    """The object that somebody describes; `given` are texts like `cidr=10.0.0.0/16`. Malformed if wrong."""
    forms = kinds.get(kind)
    if forms is None:
        raise Malformed(f"there is no kind {kind!r:.50} here: known are {', '.join(sorted(kinds))}")
    if not id_ or len(id_) > _LONGEST_ID or _UNPRINTABLE.search(id_):
        raise Malformed(f"the ID {id_!r:.50} has to have 1 to {_LONGEST_ID} printable characters")
    properties: dict[str, Any] = {}
    for one in given:
        key, equals, value = one.partition("=")
        if not equals or key not in forms:
            has = f"it has {', '.join(sorted(forms))}" if forms else "it has none"
            raise Malformed(f"{one!r:.80} sets no property of a {kind}: write NAME=VALUE; {has}")
        try:
            properties[key] = forms[key](value)
        except ValueError as error:
            raise Malformed(f"{key} of {kind} {id_!r:.80} is {value!r:.50}: it has to be {error}") from error
    return CloudObject(kind, id_, properties=properties, shared=shared)
