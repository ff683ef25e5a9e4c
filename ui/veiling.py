"""Values that may be secret are taken out of what the page shows.

The bus holds no data of Secrets. This also takes out what others may have written elsewhere: a field with the
name of a password, a file's content, a kubeconfig in an annotation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

VEILED = "(hidden)"

_SECRET = re.compile(
    r"(?i)(.*(password|passwd|token|secret_?key|secret_?access|private_?key|client_?secret|credentials?_?json).*"
    r"|(.*[./-])?(data|stringdata|binarydata|inline|content|userdata|user_?data|kubeconfig|ca_?bundle|auth)"
    r"|.*last-applied-configuration)"
)
"""Names of fields that may hold a secret."""
_STRUCTURED = ("auth", "content", "inline")
"""Where these are mappings, their fields have names of their own."""
_NO_SECRET = re.compile(r"(?i).*(ref|refs|name|names|namespace|expiration.*|seconds)")
"""Names of references to one."""
_PEM = re.compile(r"-----BEGIN [^-]*-----.*?(-----END [^-]*-----|\Z)", re.DOTALL)
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}")
# Texts are foreign: all of these begin at a word only, and give nothing back that they have taken.
_JWT = re.compile(r"(?<![\w-])eyJ[\w-]{8,}+\.[\w-]{8,}+(\.[\w-]*+)?")
_ASSIGNED = re.compile(
    r"(?i)(?<![\w-])(?=[\w-]*?(?:password|passwd|token|secret|private[_-]?key|api[_-]?key))"
    r"([\w-]++\"?\s*+[:=]\s*+\"?)(?!\(hidden\))[^\s\"',;}]{4,}+"
)
_IN_ADDRESS = re.compile(r"(?<!\w)(\w++://[^/\s:@]++):[^/\s@]++@")
_DEEPEST = 64


def veiled(value: Any, name: str = "", depth: int = 0) -> Any:
    """The value without what may be secret, `name` being that of its field."""
    if depth > _DEEPEST:
        return VEILED
    if isinstance(value, Mapping):
        if _is_secret(name) and name.lower() not in _STRUCTURED:
            return dict.fromkeys(value, VEILED)
        return {key: veiled(inner, str(key), depth + 1) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [veiled(inner, name, depth + 1) for inner in value]
    if isinstance(value, str):
        return VEILED if value and _is_secret(name) else text(value)
    return VEILED if isinstance(value, bytes) else value


def patch(operations: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A JSON patch without what may be secret: any name in a path may be that of a secret."""
    found = []
    for one in operations:
        names = [part.replace("~1", "/").replace("~0", "~") for part in str(one.get("path", "")).split("/")]
        secret = any(_is_secret(name) for name in names)
        shown = (
            {**one, "value": VEILED if secret else veiled(one["value"], names[-1])}
            if "value" in one
            else {**one}
        )
        found.append(shown)
    return found


def text(words: str) -> str:
    """A text without keys, tokens, and passwords that it names."""
    words = _PEM.sub(VEILED, words)
    words = _BEARER.sub(rf"\1 {VEILED}", words)
    words = _JWT.sub(VEILED, words)
    words = _IN_ADDRESS.sub(rf"\1:{VEILED}@", words)
    return _ASSIGNED.sub(rf"\1{VEILED}", words)


def _is_secret(name: str) -> bool:
    return bool(_SECRET.fullmatch(name)) and not _NO_SECRET.fullmatch(name)
