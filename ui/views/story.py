"""Story of an object: each step, in the lane of what did it, and the last run beside the one before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from difflib import SequenceMatcher
from typing import Any, Literal

from bus import intents, subjects
from bus.messages import Call, Result, ReviewRecord, RunRecord
from bus.recordings import SeenObject
from commands.journal import ownedobjects, recordedcalls, stories, timeline
from commands.journal.ownedobjects import OwnedObject
from commands.journal.stories import Story
from ui import veiling
from ui.spans import span
from ui.view import Params, Source, View
from windowbox import kinds
from windowbox.errors import Missing
from windowbox.kinds import RESOURCES
from windowbox.models.refs import ObjectRef

Lane = Literal["watcher", "bus", "worker", "world", "patcher", "webhooks"]
LANES: tuple[Lane, ...] = ("watcher", "bus", "worker", "world", "patcher", "webhooks")

_MOST_STEPS = 200
_MOST_DETAILS = 12
_MOST_OWNED = 50
_MOMENT = 60.0
_NO_NAMESPACE = "-"


@dataclass(frozen=True)
class Step:
    """One step of the story."""

    at: datetime
    lane: Lane
    title: str
    tone: str = ""
    """`good`, `bad`, `late` or nothing."""
    details: tuple[str, ...] = ()
    took: str = ""
    """How long it took, or waited."""
    gap: float | None = None
    """Seconds since the step before, if that was a moment ago."""
    process: str = ""
    now: bool = False
    """Whether it is not over."""


@dataclass(frozen=True)
class Line:
    """A line of the comparison: of the run before, and of the last one."""

    before: str
    last: str
    same: bool


@dataclass(frozen=True)
class Comparison:
    """The last run of a pool beside the one before."""

    pool: str
    before: RunRecord
    last: RunRecord
    lines: tuple[Line, ...]

    @property
    def differs(self) -> bool:
        return self.before.outcome != self.last.outcome or any(not line.same for line in self.lines)


@dataclass(frozen=True)
class Told:
    """The model of the view."""

    ref: ObjectRef
    kind: str
    steps: tuple[Step, ...]
    omitted: int
    """Older steps that are not shown."""
    waiting: tuple[Step, ...]
    comparisons: tuple[Comparison, ...]
    owned: tuple[OwnedObject, ...]
    gone: bool
    verdict: str
    tone: str
    lanes: tuple[Lane, ...] = field(default=LANES)


def model(ref: ObjectRef, story: Story) -> Told:
    """All steps, the newest last. Nothing secret is in them."""
    story = _veiled(story)
    steps = sorted(
        [*_seen(story.versions), *_run_steps(story.runs), *_reviews(story.reviews)], key=lambda step: step.at
    )
    waiting = tuple(
        Step(
            one.at, "bus", veiling.text(one.title), "late", tuple(map(veiling.text, one.details)), now=True
        )
        for one in story.waiting
    )  # fmt: skip
    verdict, tone = _verdict(story, waiting)
    return Told(
        ref, RESOURCES[ref.kind].kind if ref.kind in RESOURCES else ref.kind,
        tuple(_with_gaps(steps[-_MOST_STEPS:])), max(len(steps) - _MOST_STEPS, 0), waiting,
        tuple(_comparisons(story.runs)), tuple(ownedobjects.objects(story.runs)[:_MOST_OWNED]),
        bool(story.versions) and story.versions[-1].announcement().gone, verdict, tone,
    )  # fmt: skip


def _with_gaps(steps: Sequence[Step]) -> Iterator[Step]:
    """The steps, with the time since the one before."""
    before: datetime | None = None
    for step in steps:
        gap = (step.at - before).total_seconds() if before else _MOMENT
        yield replace(step, gap=gap if gap < _MOMENT else None)
        before = step.at


def _verdict(story: Story, waiting: Sequence[Step]) -> tuple[str, str]:
    """How it stands, in one sentence."""
    ours = [run for run in story.runs if run.pool != intents.PATCH]
    if ours and ours[-1].outcome is Result.FAILED:
        return ours[-1].note or "the last run failed", "bad"
    if ours and ours[-1].outcome is Result.WAITING:
        return ours[-1].note or "it waits", "late"
    if waiting:
        return waiting[0].title, "late"
    if story.versions and story.versions[-1].announcement().gone:
        return "It is gone.", ""
    return ("All is done: nothing waits.", "good") if ours else ("No run has worked on it.", "")


def _veiled(story: Story) -> Story:
    versions = [one.model_copy(update={"body": veiling.veiled(one.body)}) for one in story.versions]
    runs = [
        run.model_copy(
            update={
                "note": veiling.text(run.note),
                "calls": [Call.model_validate(veiling.veiled(call.model_dump())) for call in run.calls],
            }
        )
        for run in story.runs
    ]
    reviews = [
        one.model_copy(update={"message": veiling.text(one.message), "patch": veiling.patch(one.patch)})
        for one in story.reviews
    ]
    return Story(versions, runs, reviews, story.waiting)


def _seen(versions: Sequence[SeenObject]) -> Iterator[Step]:
    for moment in timeline.moments(versions, ()):
        yield Step(moment.at, "watcher", moment.title, moment.tone.replace("plain", ""), moment.details)


def _reviews(reviews: Iterable[ReviewRecord]) -> Iterator[Step]:
    for review in reviews:
        [moment] = timeline.moments((), (), [review])
        tone = "bad" if moment.tone == "bad" else ""
        yield Step(
            moment.at,
            "webhooks",
            moment.title,
            tone,
            moment.details[1:],
            f"took {span(review.seconds)}",
            process=review.process,
        )


def _run_steps(runs: Iterable[RunRecord]) -> Iterator[Step]:
    """A run: how it came to be on the bus, what it decided, what it did to the world."""
    for run in runs:
        asked = f"{run.pool}: asked for, because of {run.wish.reason}"
        asked += f", attempt {run.wish.attempt + 1}" if run.wish.attempt else ""
        asked += f", delivery {run.delivery}" if run.delivery > 1 else ""
        yield Step(
            run.started - timedelta(seconds=run.waited), "bus", asked, took=f"waited {span(run.waited)}"
        )
        effects = [call for call in run.calls if call.effect]
        read = [line for call in run.calls if not call.effect for line in recordedcalls.lines(call)]
        tone = {Result.SUCCEEDED: "good", Result.FAILED: "bad"}.get(run.outcome, "")
        title = f"{run.pool}: {run.outcome}" + (f": {run.note}" if run.note else "")
        details = [f"read {len(run.reads)} messages of the bus"] if run.reads else []
        lane: Lane = "patcher" if run.pool == intents.PATCH else "worker"
        if run.calls_omitted:
            read.append("its calls are not shown: the record would have been too large")
        yield Step(
            run.started,
            lane,
            title,
            tone,
            tuple([*details, *read][:_MOST_DETAILS]),
            f"took {span(run.seconds)}",
            process=run.process,
        )
        ended = run.started + timedelta(seconds=run.seconds)
        for call in effects:
            lines = list(recordedcalls.lines(call))
            if lines:
                yield Step(
                    ended, lane if call.door in ("report", "status") else "world", lines[0],
                    "bad" if call.error else "", tuple(lines[1:_MOST_DETAILS]),
                )  # fmt: skip


def _comparisons(runs: Sequence[RunRecord]) -> Iterator[Comparison]:
    """Of each pool, the last run beside the one before."""
    for pool in dict.fromkeys(run.pool for run in runs):
        ours = [run for run in runs if run.pool == pool]
        if pool != intents.PATCH and len(ours) > 1:
            yield Comparison(pool, ours[-2], ours[-1], tuple(_beside(ours[-2], ours[-1])))


def _beside(before: RunRecord, last: RunRecord) -> Iterator[Line]:
    old = [line for call in before.calls for line in recordedcalls.lines(call)]
    new = [line for call in last.calls for line in recordedcalls.lines(call)]
    for tag, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        for number in range(max(b - a, d - c)):
            was = old[a + number] if a + number < b else ""
            is_ = new[c + number] if c + number < d else ""
            yield Line(was, is_, tag == "equal")


def ref_of(params: Params) -> ObjectRef:
    """The object that a path names. Missing if there is no such kind."""
    resource = kinds.named(params["kind"])
    if resource is None:
        raise Missing(f"windowbox knows no kind {params['kind']!r:.80}")
    namespace = "" if params["namespace"] == _NO_NAMESPACE else params["namespace"]
    return ObjectRef(params["cluster"], resource.id, namespace, params["name"])


def path(ref: ObjectRef) -> tuple[str, ...]:
    """The segments of an object's path, behind `/story/`."""
    return ref.cluster, ref.kind, ref.namespace or _NO_NAMESPACE, ref.name


def heard(params: Params) -> tuple[str, ...]:
    """Where steps of the story are published."""
    ref = ref_of(params)
    key = subjects.key(ref)
    of_pools = (subjects.wish, subjects.item, subjects.run, subjects.start, subjects.later)
    return subjects.seen(ref), subjects.review(key), subjects.intent(key), *(of("*", key) for of in of_pools)


async def read(source: Source, params: Params) -> dict[str, Any]:
    ref = ref_of(params)
    story = await stories.read(source.mirror.bus, ref, await source.mirror.processes())
    if not story:
        raise Missing(f"the bus holds nothing of {ref}: it does not exist, or is gone for over a day")
    return {"model": model(ref, story)}


VIEW = View(
    name="story",
    title="Story of an object",
    about="Each step, in the lane of what did it",
    read=read,
    heard=heard,
    interval=30.0,
    path=("cluster", "kind", "namespace", "name"),
    listed=False,
)
