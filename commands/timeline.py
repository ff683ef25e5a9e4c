"""The history of one object on one timeline: versions, runs, and items that wait."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from bus.intents import PATCH
from bus.messages import Call, Read, Result, ReviewRecord, RunRecord, Wish
from bus.recordings import SeenObject
from bus.workqueue.queue import Scheduled
from commands import ownedobjects
from commands.balancers import callsummary
from commands.differences import ABSENT, changes
from windowbox.telemetry import tracing
from workers.core.lifecycle.shoots import is_shoot_namespace

Tone = Literal["plain", "good", "bad", "late"]

_UNSURPRISING = ("metadata.resourceVersion", "metadata.generation", "metadata.uid", "kind", "apiVersion")
_MOST_CHANGES = 8
_LONGEST = 200
_OVERDUE = 5.0
"""Seconds after which a scheduled wish that the server has not fired is lost."""


@dataclass(frozen=True)
class Moment:
    """One line of the timeline, and its details."""

    at: datetime
    what: str
    """`seen`, `asked` (a webhook), `run`, `status` or `waits`."""
    title: str
    details: tuple[str, ...] = ()
    tone: Tone = "plain"
    process: str = ""
    trace: str = ""

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "at": self.at.isoformat()}


@dataclass(frozen=True)
class Pending:
    """The state of one object in one pool's work queue."""

    pool: str
    wish: Wish | None = None
    wished: datetime | None = None
    item: Literal["none", "waiting", "in hand"] = "none"
    workers: int = 0
    """Processes that work for the pool."""
    scheduled: Sequence[Scheduled] = ()


def moments(
    versions: Sequence[SeenObject], runs: Iterable[RunRecord], reviews: Iterable[ReviewRecord] = ()
) -> list[Moment]:
    """All versions, runs and reviews, the newest last."""
    found = [*_seen(versions), *(_run(run) for run in runs), *(_review(one) for one in reviews)]
    return sorted(found, key=lambda moment: moment.at)


def waits(pending: Iterable[Pending], runs: Sequence[RunRecord], now: datetime) -> Iterator[Moment]:
    """Pending wishes and requeues, and why they wait."""
    for each in pending:
        if each.wish and each.wished:
            since = f"since {_span((now - each.wished).total_seconds())}"
            title = f"{each.pool}: wished for {since} ({_wish(each.wish)}): {_why(each)}"
            yield Moment(now, "waits", title, tone="late")
        ours = [run for run in runs if run.pool == each.pool]
        for one in each.scheduled:
            title = f"{each.pool}: again at {_clock(one.due)}, {_when(one, each, now)} ({_wish(one.wish)})"
            yield Moment(now, "waits", title, tuple(_because(one, ours)), tone="late")
        if (
            not each.wish
            and not each.scheduled
            and ours
            and ours[-1].outcome in (Result.WAITING, Result.FAILED)
        ):
            title = f"{each.pool}: {ours[-1].outcome}, until something that it depends on changes"
            details = (f"because: {ours[-1].note}",) if ours[-1].note else ()
            yield Moment(now, "waits", title, details, tone="late")


def unwritten(sequence: int, patch: dict[str, Any], runs: Iterable[RunRecord], now: datetime) -> list[Moment]:
    """Whether the last report, at `sequence` of INTENTS, has not been written to the cluster yet."""
    written = [
        read.sequence
        for run in runs
        if run.pool == PATCH and run.outcome is Result.SUCCEEDED
        for read in run.reads
    ]
    if not sequence or sequence in written:
        return []
    state = (patch.get("lastOperation") or {}).get("state", "a status")
    return [Moment(now, "waits", f"{PATCH}: {state} is reported, but not written yet", tone="late")]


def _when(one: Scheduled, pending: Pending, now: datetime) -> str:
    ahead = (one.due - now).total_seconds()
    if ahead >= 0 and not one.fired:
        return f"in {_span(ahead)}"
    if not pending.workers:
        return f"due since {_span(-ahead)}: {_nobody(pending.pool)}"
    if one.fired or ahead > -_OVERDUE:
        return "due, about to be queued"
    return f"overdue since {_span(-ahead)}: the next sweep queues it"


def _because(one: Scheduled, runs: Sequence[RunRecord]) -> Iterator[str]:
    """What the object waits for, and whether it still does. `runs` are those of the pool."""
    by = next((run for run in runs if run.trace and run.trace == one.trace), None)
    since = [run for run in runs if run.started > (by.started if by else one.made)]
    # Older versions wrote no note.
    why = one.wish.note or (by.note if by else "")
    if not since:
        if why:
            yield f"because: {why}"
        return
    at = f"the run of {_clock(by.started)}" if by else f"a run of {_clock(one.made)}"
    last = f"the run of {_clock(since[-1].started)}"
    if since[-1].outcome is Result.SUCCEEDED:
        yield f"left from {at}{f' (because: {why})' if why else ''}"
        yield f"not needed any more: {last} has ended since ({since[-1].outcome}), and waits for nothing"
        return
    if why:
        yield f"because: {why}"
    yield f"scheduled by {at}; {last} has left it so ({since[-1].outcome})"


def _nobody(pool: str) -> str:
    return f"no process works for pool {pool}; start one"


def _why(pending: Pending) -> str:
    match pending.item:
        case "in hand":
            return "a worker is at it"
        case _ if not pending.workers:
            return _nobody(pending.pool)
        case "waiting":
            return "queued, waiting for a worker to be free"
        case _:
            return "not queued; the next sweep queues it"


def _seen(versions: Sequence[SeenObject]) -> Iterator[Moment]:
    before: SeenObject | None = None
    for version in versions:
        seen = version.announcement()
        object = seen.object()
        title = f"{seen.operation}, version {seen.version}"
        title += f", generation {object.generation}" if object.generation else ""
        details = () if seen.gone else tuple(_changed(before, version))
        trace = tracing.trace_id(seen.trace)
        at = datetime.fromtimestamp(version.time / 1e9, UTC)
        yield Moment(at, "seen", title, details, "late" if seen.gone else "plain", trace=trace)
        before = None if seen.gone else version


def _changed(before: SeenObject | None, version: SeenObject) -> Iterator[str]:
    if version.body is None:
        yield "too large for the bus: read from the API instead"
        return
    if before is None or before.body is None:
        # Of a new object, show annotations and spec.
        metadata = version.body.get("metadata", {})
        compared = {"annotations": metadata.get("annotations"), "spec": version.body.get("spec")}
        yield from (f"{name}: {_short(value)}" for name, value in compared.items() if value)
        return
    found = [
        f"{place}: {_short(old)} → {_short(new)}"
        for place, old, new in changes(before.body, version.body)
        if place not in _UNSURPRISING and not place.endswith("Time")
    ]
    yield from found[:_MOST_CHANGES]
    if len(found) > _MOST_CHANGES:
        yield f"and {len(found) - _MOST_CHANGES} more"


def _run(run: RunRecord) -> Moment:
    tone: Tone = (
        "bad" if run.outcome is Result.FAILED else "good" if run.outcome is Result.SUCCEEDED else "plain"
    )
    title = f"{run.pool}: {run.outcome}" + (f" ({run.note})" if run.note else "")
    how = f"{_wish(run.wish)}; waited {_span(run.waited)}, took {_span(run.seconds)}, by {run.process}"
    how += f", delivery {run.delivery}" if run.delivery > 1 else ""
    calls = [line for call in run.calls for line in _call(call)]
    what = "status" if run.pool == PATCH else "run"
    return Moment(
        run.started,
        what,
        title,
        (how, *_reads(run.reads), *calls),
        tone,
        run.process,
        tracing.trace_id(run.trace),
    )


def _reads(reads: Sequence[Read]) -> Iterator[str]:
    """One line for each stream."""
    for stream in dict.fromkeys(read.stream for read in reads):
        ours = [read for read in reads if read.stream == stream]
        found = dict.fromkeys(str(read.sequence) for read in ours if read.sequence)
        missing = sum(not read.sequence for read in ours)
        absent = [f"{missing} not found"] if missing else []
        yield f"read {stream} " + ", ".join([*found, *absent])


def _review(review: ReviewRecord) -> Moment:
    dry = ", of a dry run" if review.dry_run else ""
    why = f": {review.message}" if review.message else ""
    title = f"webhook {review.webhook}: {review.outcome} at {review.operation}{dry}{why}"
    changed = [f"{one['op']} {one['path']}: {_short(one.get('value'))}" for one in review.patch]
    if len(changed) > _MOST_CHANGES:
        changed = [*changed[:_MOST_CHANGES], f"and {len(changed) - _MOST_CHANGES} more"]
    tone: Tone = "bad" if review.outcome in ("denied", "failed") else "plain"
    how = f"took {_span(review.seconds)}, by {review.process}"
    return Moment(review.decided, "asked", title, (how, *changed), tone, review.process)


def _call(call: Call) -> Iterator[str]:
    """A recorded call and its answer, where people need them."""
    failed = f" ✗ {call.error['type']}: {call.error['message']}" if call.error else ""
    match call.door, call.request, call.answer:
        case "clock", _, _:
            return
        case "reported", _, {"sequence": int(sequence)}:
            text = f"last report was INTENTS {sequence}" if sequence else ""
        case "shoot", _, {"facts": facts, "labels": labels}:
            true = [name.replace("_", " ") for name, value in (facts or {}).items() if value is True]
            known = f"its Shoot: {', '.join(true) or ('as usual' if facts else 'not there')}"
            text = known if is_shoot_namespace(labels or {}) else ""
        case "twin", _, twin:
            text = f"{twin} asks for the same name" if twin else ""
        case "dns", dict(asked), _:
            words = [asked.get(part) for part in ("do", "name", "ttl", "type")]
            text = "DNS: " + " ".join(str(word) for word in [*words, *asked.get("values", ())] if word)
        case "patch", {"metadata": dict(metadata)}, _:
            compared = {k: v for k, v in metadata.items() if k not in ("uid", "resourceVersion")}
            text = f"patch metadata: {_short(compared)}"
        case "report", {"patch": dict(patch)}, _:
            text = f"report: {_status(patch)}"
        case "status", dict(patch), _:
            text = f"status: {_status(patch)}"
        case _:
            found = ownedobjects.summary(call)
            found = callsummary.summary(call) if found is None else found
            shown = f"{call.door}: {_short(call.request)}" if call.request is not None else ""
            text = shown if found is None else found
    if text or failed:
        yield (text or call.door) + failed
    if call.door == "report" and not failed:
        yield from callsummary.events(call.request)


def _status(patch: dict[str, Any]) -> str:
    if (of_service := callsummary.status(patch)) is not None:
        return of_service
    if not patch:
        return "as it is"
    last = patch.get("lastOperation") or {}
    error = (patch.get("lastError") or {}).get("description")
    if not last and not error:
        return ", ".join(patch)
    text = error or last.get("description", "")
    return f"{last.get('type', '')} {last.get('state', '')}: {text}"


def _wish(wish: Wish) -> str:
    return wish.reason + (f", attempt {wish.attempt + 1}" if wish.attempt else "")


def _short(value: Any) -> str:
    if value is ABSENT:
        return "–"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _span(seconds: float) -> str:
    if seconds < 1:
        return f"{max(seconds, 0) * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _clock(at: datetime) -> str:
    return f"{at.astimezone():%H:%M:%S}"
