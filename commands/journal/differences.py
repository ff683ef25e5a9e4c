"""Differences found by a replay, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from bus import subjects
from commands.journal.valuechanges import ABSENT, changes
from webhooks import journal as reviews
from windowbox.telemetry import tracing
from workers.replay import Difference, Effect, Replay

_LONGEST = 160


class Line(NamedTuple):
    """A line, and its style on a terminal."""

    text: str
    colour: str | None = None


def described(difference: Difference) -> Iterator[Line]:
    """One run: its key, then recorded and replayed effects."""
    run = difference.run
    yield Line(f"{subjects.ref(run.key)}  {run.started:%Y-%m-%d %H:%M:%S}  ({run.wish.reason})", "yellow")
    yield Line(f"  trace {tracing.trace_id(run.trace) or '-'}, run as {run.process}")
    then, today = [_text(e) for e in difference.recorded], [_text(e) for e in difference.now]
    for tag, a, b, c, d in SequenceMatcher(None, then, today, autojunk=False).get_opcodes():
        old, new = difference.recorded[a:b], difference.now[c:d]
        if tag == "equal":
            yield from (Line(f"    {_cut(text)}") for text in then[a:b])
        elif len(old) == len(new) and all(x.door == y.door for x, y in zip(old, new, strict=True)):
            for x, y in zip(old, new, strict=True):
                yield Line(f"    {x.door}, differently:")
                for place, was, is_ in changes(x.request, y.request):
                    yield Line(f"  -   {place}: {_cut(_json(was))}", "red")
                    yield Line(f"  +   {place}: {_cut(_json(is_))}", "green")
        else:
            yield from (Line(f"  - {_cut(text)}", "red") for text in then[a:b])
            yield from (Line(f"  + {_cut(text)}", "green") for text in today[c:d])
    if difference.stopped:
        yield Line(f"  ! stopped: {difference.stopped}", "red")
    elif difference.outcome != run.outcome:
        yield Line(f"  - ended as: {run.outcome}", "red")
        yield Line(f"  + ends as:  {difference.outcome}", "green")


def summary(result: Replay) -> Iterator[str]:
    found = len(result.differences)
    yield f"{result.replayed} runs replayed, {found or 'none'} with differences"
    for reason, count in sorted(result.left_out.items()):
        yield f"{count} runs left out: {reason}"


def as_json(result: Replay) -> dict[str, Any]:
    return {
        "replayed": result.replayed,
        "leftOut": dict(result.left_out),
        "differences": [
            {
                "object": str(subjects.ref(d.run.key)),
                "key": d.run.key,
                "trace": d.run.trace,
                "started": d.run.started.isoformat(),
                "recorded": {"outcome": d.run.outcome, "effects": [e._asdict() for e in d.recorded]},
                "now": {"outcome": d.outcome, "effects": [e._asdict() for e in d.now]},
                "stopped": d.stopped,
            }
            for d in result.differences
        ],
    }


def described_review(difference: reviews.Difference) -> Iterator[Line]:
    """One review: its object, then recorded and replayed answers."""
    review, now = difference.review, difference.now
    yield Line(f"{subjects.ref(review.key)}  {review.decided:%Y-%m-%d %H:%M:%S}", "yellow")
    yield Line(f"  webhook {review.webhook}, {review.operation}")
    yield Line(f"  - {review.outcome}: {_cut(review.message or _json(review.patch))}", "red")
    yield Line(f"  + {now.outcome}: {_cut(now.message or now.patch.decode())}", "green")


def review_summary(result: reviews.Replay) -> Iterator[str]:
    if result.replayed or result.left_out:
        found = len(result.differences)
        yield f"{result.replayed} decisions of webhooks repeated, {found or 'none'} with differences"
    if result.left_out:
        yield f"{result.left_out} decisions left out: too large to be noted, or of an unknown webhook"


def reviews_as_json(result: reviews.Replay) -> dict[str, Any]:
    return {
        "replayed": result.replayed,
        "leftOut": result.left_out,
        "differences": [
            {
                "object": str(subjects.ref(one.review.key)),
                "webhook": one.review.webhook,
                "recorded": {"outcome": one.review.outcome, "patch": one.review.patch},
                "now": {"outcome": one.now.outcome, "patch": json.loads(one.now.patch or b"[]")},
            }
            for one in result.differences
        ],
    }


def _text(effect: Effect) -> str:
    return f"{effect.door} {_json(effect.request)}"


def _json(value: Any) -> str:
    return "–" if value is ABSENT else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
