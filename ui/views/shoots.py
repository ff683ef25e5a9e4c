"""Shoots: how each stands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ui.health import Health, State
from ui.mirror import LastRun, with_run
from ui.view import Params, Source, View
from windowbox.models.refs import CONTROL_PLANES, INFRASTRUCTURES, RUNTIME, WORKERS, ObjectRef

_MARKS = (INFRASTRUCTURES.id, CONTROL_PLANES.id, WORKERS.id)
"""Kinds of which each Shoot has one or more: where they are, there is a Shoot."""
_ORDER: tuple[State, ...] = ("failed", "degraded", "leaving", "busy", "well")
_MOST = 500


@dataclass(frozen=True)
class Row:
    """One Shoot."""

    namespace: str
    worst: Health
    parts: int
    ill: int


@dataclass(frozen=True)
class Shoots:
    """The model of the view."""

    rows: tuple[Row, ...]
    count: int
    states: tuple[tuple[State, int], ...]
    """How many are in each state, the worst first."""


def model(objects: Iterable[tuple[ObjectRef, Health]], ill: Iterable[LastRun]) -> Shoots:
    """Those that are not well come first. `ill` are runs that have failed, or wait."""
    runs = {run.ref: run for run in ill}
    by_namespace, marked = dict[str, list[Health]](), set[str]()
    for ref, state in objects:
        if ref.cluster == RUNTIME and ref.namespace:
            run = runs.get(ref)
            by_namespace.setdefault(ref.namespace, []).append(with_run(state, run) if run else state)
            if ref.kind in _MARKS:
                marked.add(ref.namespace)
    rows = [_row(namespace, by_namespace[namespace]) for namespace in marked]
    rows.sort(key=lambda row: (_ORDER.index(row.worst.state), row.namespace))
    counts = Counter(row.worst.state for row in rows)
    return Shoots(
        tuple(rows[:_MOST]), len(rows), tuple((state, counts[state]) for state in _ORDER if counts[state])
    )


def _row(namespace: str, states: list[Health]) -> Row:
    worst = min(states, key=lambda one: (_ORDER.index(one.state), not one.why))
    return Row(namespace, worst, len(states), sum(one.state != "well" for one in states))


async def read(source: Source, _: Params) -> Mapping[str, Any]:
    mirror = source.mirror
    objects = (one for view in mirror.objects.values() for one in view.items())
    return {"model": model(objects, mirror.ill.values())}


VIEW = View(
    name="shoots",
    title="Shoots",
    about="How each stands",
    read=read,
    topics=frozenset({"health"}),
)
