"""Repeats recorded reviews with today's webhooks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import orjson

from bus.messages import ReviewRecord
from webhooks import answering, table
from webhooks.answering import Answer
from webhooks.journal import unpacked
from webhooks.server import outcome
from windowbox.errors import Malformed


@dataclass(frozen=True)
class Difference:
    """A review that is answered otherwise today."""

    review: ReviewRecord
    now: Answer


@dataclass
class Replay:
    """What became of recorded reviews."""

    replayed: int = 0
    left_out: int = 0
    """How many could not be repeated: they were too large to be noted, or could not be read."""
    differences: list[Difference] = field(default_factory=list)


def replayed(reviews: Iterable[ReviewRecord]) -> Replay:
    """Answer all of them again, and compare."""
    result = Replay()
    for review in reviews:
        webhook = table.WEBHOOKS.get(review.webhook)
        try:
            given, context = unpacked(review.request)
        except Malformed:
            webhook = None
        if webhook is None:
            result.left_out += 1
            continue
        result.replayed += 1
        answer = answering.decide(webhook, given, context)
        if _differs(review, answer):
            result.differences.append(Difference(review, answer))
    return result


def _differs(review: ReviewRecord, answer: Answer) -> bool:
    then = (review.outcome, review.message)
    if then != (outcome(answer), answer.message):
        return True
    # The patch of a Secret is not noted. There is none: Secrets are only validated.
    return bool(review.patch) and review.patch != orjson.loads(answer.patch or b"[]")
