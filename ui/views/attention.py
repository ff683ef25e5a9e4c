"""Needs attention: what is not well, reason first, and what happens next."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from bus import subjects
from commands import busstatus
from commands.busstatus import PoolState
from ui.health import Health, State
from ui.mirror import LastRun, Later, Place
from ui.view import Params, Source, View
from windowbox.kinds import RESOURCES
from windowbox.models.refs import ObjectRef

Level = Literal["failed", "stuck", "waiting"]

STUCK = 120.0
"""Seconds after which what waits or leaves needs attention: until then it is at work."""
_MOST_GROUPS, _MOST_OBJECTS = 50, 20
_WORD = re.compile(r"[0-9a-f.:]+")
"""A number, an address or a digest, if it has a digit."""
_ORDER: Mapping[Level, int] = {"failed": 0, "stuck": 1, "waiting": 2}


@dataclass(frozen=True)
class Need:
    """One thing that is not well."""

    level: Level
    reason: str
    since: float
    """0 if it is unknown."""
    next: str
    """What happens by itself, or what a person can do."""
    due: float = 0.0
    """When it is tried again."""
    ref: ObjectRef | None = None
    place: Place | None = None
    certain: bool = True
    """Whether it is not so for longer than that."""


@dataclass(frozen=True)
class Group:
    """Things with one reason in common."""

    level: Level
    reason: str
    since: float
    certain: bool
    next: str
    due: float
    kind: str
    refs: tuple[ObjectRef, ...]
    count: int


@dataclass(frozen=True)
class Attention:
    """The model of the view."""

    groups: tuple[Group, ...]
    more: int
    """Reasons beyond those that are shown."""
    well: int
    busy: int
    kinds: tuple[tuple[str, int], ...] = ()
    """How many objects of each kind there are."""
    settled: bool = True
    processes: int = 0

    @property
    def troubled(self) -> int:
        return sum(group.count for group in self.groups if group.level != "waiting")


def needs(
    objects: Iterable[tuple[ObjectRef, Health]],
    ill: Mapping[Place, LastRun],
    later: Mapping[Place, Later],
    pools: Iterable[PoolState],
    now: float,
) -> list[Need]:
    """All that is not well, once for each object: a run's own words say more than a status."""
    found: dict[ObjectRef | str, Need] = {}
    for pool in pools:
        if not pool.workers and (pool.waiting or pool.unrouted):
            waits = f"{pool.waiting} objects wait" if pool.waiting else "changes of objects wait"
            reason = f"no process works for pool {pool.pool}: {waits}"
            since = now - pool.oldest_seconds if pool.oldest_seconds else 0.0
            found[pool.pool] = Need("failed", reason, since, f"start one: windowbox work --pool {pool.pool}")
    for place, run in ill.items():
        known, need = found.get(run.ref), _of_run(place, run, later.get(place), now)
        if known is None or _ORDER[need.level] < _ORDER[known.level]:
            found[run.ref] = need
    for place, one in later.items():
        if one.quarantined and one.due > now:
            ref = subjects.ref(place[1])
            reason = "in quarantine: its runs ended their process"
            next_ = "report it as a bug; it is taken up again by itself"
            found[ref] = Need("failed", reason, one.made, next_, one.due, ref, place)
    for ref, state in objects:
        known = found.get(ref)
        if known is None or (known.level == "waiting" and state.state in ("failed", "degraded")):
            found[ref] = _of_object(ref, state, now)
    return sorted(found.values(), key=lambda need: (_ORDER[need.level], need.since, need.reason))


def _of_run(place: Place, run: LastRun, later: Later | None, now: float) -> Need:
    level: Level = "failed" if run.failed else "stuck" if now - run.since > STUCK else "waiting"
    due = later.due if later and later.made >= run.started and later.due > now else 0.0
    if due:
        next_ = "tried again by itself"
    elif run.failed:
        next_ = "correct what it says: a change of the object starts the next run"
    else:
        next_ = "goes on as soon as that changes"
    reason = run.note or ("the last run failed" if run.failed else "it waits")
    return Need(level, reason, run.since, next_, due, run.ref, place, run.certain)


def _of_object(ref: ObjectRef, state: Health, now: float) -> Need:
    match state.state:
        case "failed":
            return Need("failed", state.why, state.since, "its story shows what led to it", 0.0, ref)
        case "degraded":
            return Need("stuck", state.why, state.since, "its story shows what led to it", 0.0, ref)
        case _:
            level: Level = "stuck" if state.since and now - state.since > STUCK else "waiting"
            return Need(level, state.why, state.since, "goes when its finalizers are gone", 0.0, ref)


def groups(found: Iterable[Need]) -> list[Group]:
    """Needs of one kind with the same reason, but for names and numbers, are one row."""
    together: dict[tuple[str, ...], list[Need]] = {}
    for need in found:
        kind = need.ref.kind if need.ref else ""
        together.setdefault((need.level, kind, _shape(need)), []).append(need)
    made = []
    for (_, kind, _), members in together.items():
        first = min(members, key=lambda need: need.since or float("inf"))
        refs = tuple(one.ref for one in members if one.ref)
        made.append(
            Group(
                first.level, first.reason, first.since, first.certain, first.next,
                min((one.due for one in members if one.due), default=0.0),
                RESOURCES[kind].kind if kind in RESOURCES else kind, refs[:_MOST_OBJECTS], len(members),
            )
        )  # fmt: skip
    return sorted(made, key=lambda group: (_ORDER[group.level], -group.count))


def _shape(need: Need) -> str:
    """The reason without the names of its own object, and without numbers."""
    text = need.reason
    for name in sorted({need.ref.namespace, need.ref.name}, key=len, reverse=True) if need.ref else ():
        text = text.replace(name, "…") if name else text
    return _WORD.sub(lambda word: "#" if any(map(str.isdecimal, word[0])) else word[0], text)


def model(
    found: list[Need], counts: Mapping[str, Counter[str]], settled: bool, processes: Collection[Any]
) -> Attention:
    """`counts` has the number of objects in each state, by kind."""
    made, states = groups(found), sum(counts.values(), Counter[str]())
    ill = {need.ref for need in found if need.ref and need.level != "waiting"}
    waiting = sum(need.ref is not None and need.level == "waiting" for need in found)
    kinds = sorted((RESOURCES[kind].kind, count.total()) for kind, count in counts.items() if count.total())
    return Attention(
        tuple(made[:_MOST_GROUPS]), max(len(made) - _MOST_GROUPS, 0),
        max(states.total() - len(ill) - waiting, 0), waiting, tuple(kinds), settled, len(processes),
    )  # fmt: skip


async def read(source: Source, _: Params) -> dict[str, Any]:
    mirror, now = source.mirror, time.time()
    processes = await mirror.processes()
    pools = await busstatus.pools(mirror.bus, processes, at_rest=False)
    objects = [
        one
        for view in mirror.objects.values()
        for state in ("failed", "degraded", "leaving")
        for one in view.found(state)
    ]
    counts = {
        kind: Counter({state: len(view.refs(state)) for state in get_args(State)})
        for kind, view in mirror.objects.items()
    }  # fmt: skip
    shown = needs(objects, mirror.ill, mirror.later, pools, now)
    unsure = [need.place for need in shown if need.place and not need.certain][:_MOST_GROUPS]
    if unsure:
        await asyncio.gather(*map(mirror.learn_since, unsure))
        shown = needs(objects, mirror.ill, mirror.later, pools, now)
    return {"model": model(shown, counts, mirror.settled, processes)}


VIEW = View(
    name="attention",
    title="Needs attention",
    about="What is not well, and what happens next",
    read=read,
    topics=frozenset({"health"}),
    interval=10.0,
)
