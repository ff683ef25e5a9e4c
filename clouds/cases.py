"""Answers cases: `python -m clouds.cases CLOUD < cases.jsonl`, one line of JSON for each."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from clouds import table
from clouds.frame import admission
from clouds.frame.cloud import Cloud, Json, Lookup
from clouds.frame.gardenobjects import stored
from windowbox.errors import Malformed
from windowbox.models.objects import mapping, mappings

_GONE = object()
_ABOUT = {"reconcile": "shoot", "reconcile-cloudprofile": "cloudprofile"}
"""Other names where a cloud has no admission."""


def answer(cloud: Cloud, case: Mapping[str, Any]) -> Json:
    """The problems of the case's object, and what the mutator changes."""
    about = _ABOUT.get(case["about"], case["about"]).removesuffix("-update")
    new, old, find = case["object"], case.get("old"), lookup(case)
    if about == "shoot-mutate":
        try:
            changed = admission.mutated(cloud, new, old, find)
        except Malformed as error:
            return {"id": case["id"], "errors": [{"path": "", "type": "Error", "message": str(error)}]}
        return {"id": case["id"], "errors": [], "changes": [*_changes("", stored(new), changed)]}
    found = admission.problems(cloud, about, new, old, find)
    errors = [{"path": one.path, "type": one.type, "message": one.message} for one in found]
    return {"id": case["id"], "errors": errors}


def lookup(case: Mapping[str, Any]) -> Lookup:
    objects = {}
    for one in mappings([case.get("cloudprofile"), *(case.get("objects") or [])]):
        metadata = mapping(one.get("metadata"))
        objects[str(one.get("kind")), str(metadata.get("namespace") or ""), str(metadata.get("name"))] = one
    return lambda kind, namespace, name: objects.get((kind, namespace, name))


def _changes(path: str, before: object, after: object) -> Iterator[Json]:
    """Each place with another value, as deep as both sides have the same form."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted(before.keys() | after.keys()):
            child = f"{path}[{name}]" if "." in name else f"{path}.{name}".lstrip(".")
            yield from _changes(child, before.get(name, _GONE), after.get(name, _GONE))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for i, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _changes(f"{path}[{i}]", one, other)
    elif before is not after and before != after:
        yield {"path": path, "value": None if after is _GONE else after}


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(f"usage: python -m clouds.cases CLOUD < cases.jsonl; clouds: {', '.join(table.TYPES)}")
    cloud = table.cloud(sys.argv[1])
    for line in sys.stdin:
        if line.strip():
            print(json.dumps(answer(cloud, json.loads(line))))


if __name__ == "__main__":
    main()
