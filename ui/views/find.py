"""Find: objects whose names contain a text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ui.health import Health
from ui.view import Params, Source, View
from windowbox.kinds import RESOURCES
from windowbox.models.refs import ObjectRef

_MOST = 100
_LONGEST = 200
_ORDER = {"failed": 0, "degraded": 1, "leaving": 2, "busy": 3, "well": 4}


@dataclass(frozen=True)
class Match:
    ref: ObjectRef
    kind: str
    health: Health


@dataclass(frozen=True)
class Found:
    """The model of the view."""

    text: str
    matches: tuple[Match, ...]
    count: int


def model(text: str, objects: Iterable[tuple[ObjectRef, Health]]) -> Found:
    """Objects with all words of the text in their kind, namespace or name; those that are not well first."""
    text = text[:_LONGEST]
    words = text.lower().replace("/", " ").split()
    matches = [
        Match(ref, RESOURCES[ref.kind].kind, health)
        for ref, health in objects
        if all(
            word in f"{ref.kind} {RESOURCES[ref.kind].kind} {ref.namespace} {ref.name}".lower()
            for word in words
        )
    ]
    matches.sort(key=lambda one: (_ORDER[one.health.state], one.kind, one.ref))
    return Found(text, tuple(matches[:_MOST]), len(matches))


async def read(source: Source, params: Params) -> Mapping[str, Any]:
    objects = [one for view in source.mirror.objects.values() for one in view.items()]
    return {"model": model(params.get("q", ""), objects)}


VIEW = View(
    name="find",
    title="Objects",
    about="All objects that windowbox serves",
    read=read,
    topics=frozenset({"health"}),
    query=("q",),
)
