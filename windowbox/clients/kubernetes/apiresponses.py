"""Validates responses of API servers: tenants write the objects, and run some of the servers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson

from windowbox.errors import (
    Conflict,
    Forbidden,
    Missing,
    PermanentError,
    Refused,
    TooManyRequests,
    Unreachable,
    WatchExpired,
)
from windowbox.models.refs import Resource

UNAUTHENTICATED = "ERR_INFRA_UNAUTHENTICATED"

_LONGEST = 2000
"""Characters of an error text: the text goes into the status of objects."""
_DEEPEST = 100
"""The nesting limit of an object. Kubernetes allows a hundred times as much, which no JSON reader here could
take: one such object would stop the reader for all others."""
_QUOTA = "exceeded quota: "
"""The only sign by which an API server distinguishes a used-up right from a missing one."""
_FIELDS = {"labels": dict, "annotations": dict, "finalizers": list, "ownerReferences": list}
_PARTS = {"labels": str, "annotations": str, "finalizers": str, "ownerReferences": dict}
"""The type of each entry."""
_VERSION = re.compile(r"[!-~]{0,128}")
"""A uid or a resourceVersion: it is a header on the bus."""
_CONTINUE = re.compile(r"[!-~]{0,8192}")
"""A continue token: it is a part of a URL."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
"""Names become parts of subjects and paths. All kinds that are watched have names of this form."""
_SEGMENT = re.compile(r"(?!\.{1,2}\Z)[^/%]+")
_NAMED_BY_SEGMENT = frozenset({"certificates.k8s.io", "rbac.authorization.k8s.io"})
"""Groups whose objects may have any path segment as a name: node-csr-GccQ_dse6, system:node."""
_TOKEN = re.compile(rb'"[^"]*"?|[\[\]{}]')
"""A string, also one without an end, or a bracket, in a text without escapes. Nothing here backtracks: a scan
takes linear time, whatever the text is."""
_PARSED = 1024
"""orjson refuses what is nested deeper. So a refused text with fewer brackets is no JSON at all."""


def decoded(what: str, answer: bytes) -> dict[str, Any]:
    """The JSON object of a response. Parts that are nested too deep to be parsed become null."""
    try:
        found = orjson.loads(answer)
    except orjson.JSONDecodeError:
        if answer.count(b"[") + answer.count(b"{") < _PARSED:
            raise _foreign(what) from None
        try:
            found = orjson.loads(_cut(answer))
        except orjson.JSONDecodeError:
            raise _foreign(what) from None
    return _mapping(what, found)


def shallowly_decoded(what: str, answer: bytes) -> dict[str, Any]:
    """The JSON object of a response, with null for parts beyond the nesting limit."""
    found = decoded(what, answer)
    if answer.count(b"[") + answer.count(b"{") < _DEEPEST:
        return found  # as most objects: too few brackets for so deep a part
    return shallow(found)  # type: ignore[no-any-return]


def shallow(value: Any, depth: int = _DEEPEST) -> Any:
    """The value with null for parts beyond the nesting limit."""
    if isinstance(value, dict):
        return {name: shallow(inner, depth - 1) for name, inner in value.items()} if depth else None
    if isinstance(value, list):
        return [shallow(inner, depth - 1) for inner in value] if depth else None
    return value


def sound(what: str, object: Any) -> dict[str, Any]:
    """The object, if the metadata fields that are read have valid types and forms."""
    metadata = _mapping(what, _mapping(what, object).get("metadata"))
    for name in ("uid", "resourceVersion"):
        _spelled(what, metadata.get(name), _VERSION)
    for name, form in _FIELDS.items():
        found = _of(what, metadata.get(name), form, form())
        for part in found.values() if form is dict else found:
            if not isinstance(part, _PARTS[name]):
                raise _foreign(what)
    _of(what, metadata.get("generation"), int, 0)
    return object  # type: ignore[no-any-return]


def named(what: str, object: Any, resource: Resource) -> dict[str, Any]:
    """The object, if it is sound and its name is valid for its kind."""
    metadata = sound(what, object)["metadata"]
    form = _SEGMENT if resource.group in _NAMED_BY_SEGMENT else _NAME
    if not form.fullmatch(_of(what, metadata.get("name"), str, "")):
        raise _foreign(what)
    namespace = _of(what, metadata.get("namespace"), str, "")
    if not (_NAMESPACE.fullmatch(namespace) if resource.namespaced else namespace == ""):
        raise _foreign(what)
    return object  # type: ignore[no-any-return]


def listed(
    what: str, listing: Mapping[str, Any], resource: Resource
) -> tuple[list[dict[str, Any]], str, str]:
    """The objects of a page, its resource version, and the continue token."""
    items = [named(what, item, resource) for item in _of(what, listing.get("items"), list, [])]
    metadata = _of(what, listing.get("metadata"), dict, {})
    version = _spelled(what, metadata.get("resourceVersion"), _VERSION)
    return items, version, _spelled(what, metadata.get("continue"), _CONTINUE)


def event(what: str, line: bytes, resource: Resource) -> tuple[str, dict[str, Any]]:
    """The type and object of a watch event."""
    found = decoded(what, line)
    object = _mapping(what, found.get("object"))
    type = _of(what, found.get("type"), str, "")
    if type == "ERROR":
        code = object.get("code")
        raise refusal(what, code if isinstance(code, int) else 500, orjson.dumps(shallow(object)))
    # A bookmark is about no object.
    checked = sound(what, object) if type == "BOOKMARK" else named(what, object, resource)
    if not checked["metadata"].get("resourceVersion"):
        raise _foreign(what)
    return type, object


def refusal(what: str, status: int, body: bytes) -> Exception:
    """The error for a failed response of the API."""
    message = _said(status, body)
    match status:
        case 404:
            return Missing(f"{what}: {message}")
        case 409:
            return Conflict(f"{what}: {message}")
        case 410:
            return WatchExpired(f"{what}: {message}")
        case 401:
            return PermanentError(f"{what}: {message}", codes=(UNAUTHENTICATED,))
        case 403 if _QUOTA in message:
            return Forbidden(f"{what}: {message}", codes=("ERR_INFRA_QUOTA_EXCEEDED",))
        case 403:
            return Forbidden(f"{what}: {message}")
        case 429:
            return TooManyRequests(f"{what}: {message}")
        case 500 | 502 | 503 | 504:
            return Unreachable(f"{what}: {message}")
        case _:
            return Refused(f"{what}: {message}")


def _said(status: int, body: bytes) -> str:
    """The message of a Status. Other texts are not passed on: they may be confidential."""
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        answer = None
    if not isinstance(answer, dict) or answer.get("kind") != "Status":
        return f"{status}, and not from a Kubernetes API"
    return str(answer.get("message") or status)[:_LONGEST]


def _cut(answer: bytes) -> bytes:
    """The text with null in place of parts beyond the nesting limit."""
    kept, begun, depth = [], 0, 0
    # Blanks in place of escapes keep all positions.
    for token in _TOKEN.finditer(answer.replace(b"\\\\", b"  ").replace(b'\\"', b"  ")):
        match answer[token.start()]:
            case 0x7B | 0x5B:  # { [
                depth += 1
                if depth == 2 * _DEEPEST:
                    kept.append(answer[begun : token.start()] + b"null")
            case 0x7D | 0x5D:  # } ]
                if depth == 2 * _DEEPEST:
                    begun = token.end()
                depth -= 1
    return b"".join([*kept, answer[begun:]])


def _mapping(what: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _foreign(what)
    return value


def _of(what: str, value: Any, form: type, absent: Any) -> Any:
    if value is None:
        return absent
    if not isinstance(value, form):
        raise _foreign(what)
    return value


def _spelled(what: str, value: Any, form: re.Pattern[str]) -> str:
    found = _of(what, value, str, "")
    if not form.fullmatch(found):
        raise _foreign(what)
    return found  # type: ignore[no-any-return]


def _foreign(what: str) -> Unreachable:
    return Unreachable(f"{what}: the answer is not from a Kubernetes API")
