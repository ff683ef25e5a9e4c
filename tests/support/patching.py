"""JSON patches (RFC 6902), applied strictly as API servers do."""

from __future__ import annotations

import copy
from typing import Any


def patched(document: Any, patch: list[dict[str, Any]]) -> Any:
    """The document after the patch; KeyError or IndexError where a path leads nowhere."""
    whole = {"": copy.deepcopy(document)}
    for operation in patch:
        parent: Any = whole
        tokens = ["", *str(operation["path"]).split("/")[1:]]
        for token in tokens[:-1]:
            parent = parent[_place(parent, token)]
        _apply(parent, tokens[-1], copy.deepcopy(operation))
    return whole[""]


def _apply(parent: Any, token: str, operation: dict[str, Any]) -> None:
    place = _place(parent, token)
    match operation["op"]:
        case "remove":
            del parent[place]
        case "replace":
            _ = parent[place]  # has to be there
            parent[place] = operation["value"]
        case "add" if isinstance(parent, list):
            if place > len(parent):
                raise IndexError(place)
            parent.insert(place, operation["value"])
        case "add":
            parent[place] = operation["value"]
        case other:
            raise AssertionError(f"operation {other!r}")


def _place(parent: Any, token: str) -> Any:
    if isinstance(parent, list):
        return len(parent) if token == "-" else int(token)
    return token.replace("~1", "/").replace("~0", "~")
