"""The history of one object on one timeline: versions, runs, and items that wait."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from bus.intents import PATCH
from bus.messages import Result, ReviewRecord, RunRecord, Wish
from bus.recordings import SeenObject
from bus.workqueue.queue import Scheduled
from commands.journal import recordedcalls
from commands.journal.recordedcalls import short
from commands.journal.valuechanges import changes
from windowbox.telemetry import tracing

Tone = Literal["plain", "good", "bad", "late"]

_UNSURPRISING = ("metadata.resourceVersion", "metadata.generation", "metadata.uid", "kind", "apiVersion")
_MOST_CHANGES = 8
_OVERDUE = 5.0
"""Seconds after which a scheduled wish that the server has not fired is lost."""

_TONES: dict[Result, Tone] = {Result.SUCCEEDED: "good", Result.FAILED: "bad"}


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
    found = [*_seen(versions), *map(_run, runs), *map(_review, reviews)]
    return sorted(found, key=lambda moment: moment.at)


def waits(pending: Iterable[Pending], runs: Sequence[RunRecord], now: datetime) -> Iterator[Moment]:
    """Pending wishes and requeues, and why they wait."""
    for each in pending:
        nobody = "" if each.workers else f"no process works for pool {each.pool}; start one"
        if each.wish and each.wished:
            why = {
                "waiting": "queued, waiting for a free worker",
                "in hand": "a worker is reconciling it",
            }
            # An item in hand is being worked on, even if its worker does not answer for its pool.
            reason = nobody if nobody and each.item != "in hand" else why.get(each.item)
            since = f"since {_span((now - each.wished).total_seconds())}"
            title = f"{each.pool}: wished for {since} ({_wish(each.wish)}): "
            title += reason or "not queued; the next sweep queues it"
            yield Moment(now, "waits", title, tone="late")
        ours = [run for run in runs if run.pool == each.pool]
        for one in each.scheduled:
            ahead = (one.due - now).total_seconds()
            if ahead >= 0 and not one.fired:
                when = f"in {_span(ahead)}"
            elif nobody:
                when = f"due since {_span(-ahead)}: {nobody}"
            elif one.fired or ahead > -_OVERDUE:
                when = "due, about to be queued"
            else:
                when = f"overdue since {_span(-ahead)}: the next sweep queues it"
            title = f"{each.pool}: again at {_clock(one.due)}, {when} ({_wish(one.wish)})"
            yield Moment(now, "waits", title, tuple(_because(one, ours)), tone="late")
        if ours and not each.wish and not each.scheduled:
            last = ours[-1]
            if last.outcome in (Result.WAITING, Result.FAILED):
                title = f"{each.pool}: {last.outcome}, until something that it depends on changes"
                yield Moment(
                    now, "waits", title, (f"because: {last.note}",) if last.note else (), tone="late"
                )


def _because(one: Scheduled, runs: Sequence[RunRecord]) -> Iterator[str]:
    """The reason why the object waits, and whether it still does. `runs` are those of the pool."""
    by = next((run for run in runs if run.trace and run.trace == one.trace), None)
    since = [run for run in runs if run.started > (by.started if by else one.made)]
    # Records of older versions have no note.
    why = one.wish.note or (by.note if by else "")
    needless = bool(since) and since[-1].outcome is Result.SUCCEEDED
    if why and not needless:
        yield f"because: {why}"
    if not since:
        return
    at = f"the run of {_clock(by.started)}" if by else f"a run of {_clock(one.made)}"
    last = f"the run of {_clock(since[-1].started)}"
    if needless:
        yield f"left from {at}{f' (because: {why})' if why else ''}"
        yield f"not needed any more: {last} has ended since ({since[-1].outcome}), and waits for nothing"
    else:
        yield f"scheduled by {at}; {last} has left it so ({since[-1].outcome})"


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


def _seen(versions: Sequence[SeenObject]) -> Iterator[Moment]:
    before: dict[str, Any] | None = None
    for version in versions:
        seen, body = version.announcement(), version.body
        generation = seen.object().generation
        title = f"{seen.operation}, version {seen.version}"
        title += f", generation {generation}" if generation else ""
        if seen.gone:
            details = []
        elif body is None:
            details = ["too large for the bus: read from the API instead"]
        elif before is None:
            # Of a new object, show annotations and spec.
            shown = {"annotations": body.get("metadata", {}).get("annotations"), "spec": body.get("spec")}
            details = [f"{name}: {short(value)}" for name, value in shown.items() if value]
        else:
            details = _first(
                f"{place}: {short(old)} → {short(new)}"
                for place, old, new in changes(before, body)
                if place not in _UNSURPRISING and not place.endswith("Time")
            )
        at, trace = datetime.fromtimestamp(version.time / 1e9, UTC), tracing.trace_id(seen.trace)
        yield Moment(at, "seen", title, tuple(details), "late" if seen.gone else "plain", trace=trace)
        before = None if seen.gone else body


def _first(changed: Iterable[str]) -> list[str]:
    """The first changes, and how many more there are."""
    all_ = list(changed)
    more = len(all_) - _MOST_CHANGES
    return [*all_[:_MOST_CHANGES], f"and {more} more"] if more > 0 else all_


def _run(run: RunRecord) -> Moment:
    title = f"{run.pool}: {run.outcome}" + (f" ({run.note})" if run.note else "")
    how = f"{_wish(run.wish)}; waited {_span(run.waited)}, took {_span(run.seconds)}, by {run.process}"
    how += f", delivery {run.delivery}" if run.delivery > 1 else ""
    details = [how]
    for stream in dict.fromkeys(read.stream for read in run.reads):
        ours = [read.sequence for read in run.reads if read.stream == stream]
        found = [str(sequence) for sequence in dict.fromkeys(ours) if sequence]
        absent = [f"{ours.count(0)} not found"] if 0 in ours else []
        details.append(f"read {stream} " + ", ".join([*found, *absent]))
    details += [line for call in run.calls for line in recordedcalls.lines(call)]
    what, tone = "status" if run.pool == PATCH else "run", _TONES.get(run.outcome, "plain")
    trace = tracing.trace_id(run.trace)
    return Moment(run.started, what, title, tuple(details), tone, run.process, trace)


def _review(review: ReviewRecord) -> Moment:
    dry = ", of a dry run" if review.dry_run else ""
    why = f": {review.message}" if review.message else ""
    title = f"webhook {review.webhook}: {review.outcome} at {review.operation}{dry}{why}"
    changed = _first(f"{one['op']} {one['path']}: {short(one.get('value'))}" for one in review.patch)
    tone: Tone = "bad" if review.outcome in ("denied", "failed") else "plain"
    how = f"took {_span(review.seconds)}, by {review.process}"
    return Moment(review.decided, "asked", title, (how, *changed), tone, review.process)


def _wish(wish: Wish) -> str:
    return wish.reason + (f", attempt {wish.attempt + 1}" if wish.attempt else "")


def _span(seconds: float) -> str:
    if seconds < 1:
        return f"{max(seconds, 0) * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _clock(at: datetime) -> str:
    return f"{at.astimezone():%H:%M:%S}"
