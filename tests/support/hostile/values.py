"""Hostile values for the fields of an object, by the schema of its kind."""

from __future__ import annotations

import base64
from random import Random
from typing import Any

Schema = dict[str, Any]

TEXTS = (
    "", ".", "..", "*", "*.", "-", "_", "/", "../../../etc/passwd", "/etc/passwd", "a/b", "a\\b",
    "\0", "\n", "\r\nHost: x", "\t", "\x1b[2J", "\x7f",
    "\u202e", "\u2028", "\ud800", "\ufeff", "ä", "A b", "𝒳", "🦀",
    "'", '"', "`id`", "$(id)", "${x}", "'; id; '", "{{.}}", "%s%n", "<script>", "|", "&", ">", "#", "\\",
    "null", "true", "-1", "1e309", "NaN", "0x7f.1", "9" * 400, "xn--", "xn--a",
    "a" * 63, "a" * 64, "a" * 253, "a" * 254, "x" * 5000, "ä" * 300, ".".join(["a" * 63] * 4), "a." * 120,
    "10.0.0.1", "10.0.0.256", "::1", "fe80::1%eth0", "::ffff:10.0.0.1", "127.0.0.1", "169.254.169.254",
    "0.0.0.0", "10.0.0.0/33", "10.0.0.1/24", "0.0.0.0/0", "::/0", "10.0.0.0/-1",
    "local.gardener.cloud", "*.local.gardener.cloud", "kube-system", "default", "garden", "cloudprovider",
    "no-such-thing", "reconcile", "local", "IPv4", "IPv6",
    "2026-02-30T25:61:61+99:99", "9999-12-31T23:59:59Z", "https://169.254.169.254/", "file:///etc/passwd",
)  # fmt: skip
NUMBERS = (
    0, -1, 1, 2, 120, 255, 256, 443, 65535, 65536, 2**31 - 1, 2**31, -(2**31), 2**53 + 1, 2**63 - 1, -(2**63),
)  # fmt: skip
TIMES = (
    "0001-01-01T00:00:00Z",
    "2026-09-01T10:15:31+14:00",
    "9999-12-31T23:59:59Z",
    "1970-01-01T00:00:00.000001Z",
)
COUNTS = (0, 2, 63, 64, 65, 100, 101, 128, 249, 250, 251, 999, 1000, 1001, 5000)
"""How long lists become: limits, and one more or less."""
DEPTHS = (10, 100, 500, 1000, 3000, 9000)
_DEEP = "@@deep:%s:%d@@"


def value(schema: Schema, chance: Random, depth: int = 0) -> Any:
    """A value that mostly passes this schema."""
    if chance.random() < 0.04:
        return anything(chance)
    if "enum" in schema and chance.random() < 0.8:
        return chance.choice(schema["enum"])
    match schema.get("type"):
        case "string":
            return text(chance, schema.get("format", ""))
        case "integer" | "number":
            return chance.choice(NUMBERS)
        case "boolean":
            return chance.random() < 0.5
        case "array":
            count = chance.choice((0, 1, 2, 3)) if depth else chance.choice((0, 1, 3, 20))
            return [value(schema.get("items", {}), chance, depth + 1) for _ in range(count)]
        case "object" if "properties" in schema:
            wanted = set(schema.get("required", ()))
            return {
                name: value(inner, chance, depth + 1)
                for name, inner in schema["properties"].items()
                if name in wanted or chance.random() < 0.5 / (depth + 1)
            }
        case "object" if "additionalProperties" in schema:
            inner = schema["additionalProperties"]
            names = chance.sample(TEXTS, chance.randrange(4))
            return {name: value(inner, chance, depth + 1) for name in names}
    return anything(chance)


def anything(chance: Random, depth: int = 0) -> Any:
    """Any JSON at all; sometimes very deep."""
    if not depth and chance.random() < 0.3:
        return deep(chance)
    match chance.randrange(8 if depth < 4 else 5):
        case 0:
            return None
        case 1:
            return chance.random() < 0.5
        case 2:
            return chance.choice(NUMBERS)
        case 3:
            return chance.choice((1e308, -0.0, 5e-324, 0.1))
        case 4:
            return chance.choice(TEXTS)
        case 5:
            return [anything(chance, depth + 1) for _ in range(chance.randrange(4))]
        case _:
            return {chance.choice(TEXTS): anything(chance, depth + 1) for _ in range(chance.randrange(4))}


def text(chance: Random, format_: str = "") -> str:
    match format_:
        case "date-time" if chance.random() < 0.9:
            return chance.choice(TIMES)
        case "byte" if chance.random() < 0.8:
            content = chance.choice(TEXTS).encode(errors="replace") * chance.choice((1, 1, 1, 100))
            return base64.b64encode(content).decode()
    return chance.choice(TEXTS)


def deep(chance: Random) -> str:
    """A placeholder for a value nested too deeply for our JSON library."""
    return _DEEP % (chance.choice("{["), chance.choice(DEPTHS))


def expanded(document: str) -> str:
    """The JSON document with the values of its `deep` placeholders."""
    before, *parts = document.split('"@@deep:')
    for part in parts:
        what, _, rest = part.partition('@@"')
        opening, _, levels = what.partition(":")
        first, last = ('{"a":', "}") if opening == "{" else ("[", "]")
        before += first * int(levels) + "1" + last * int(levels) + rest
    return before
