"""Writes webhook decisions to JOURNAL. It delays no answer; when it is full, entries are dropped."""

from __future__ import annotations

import asyncio
import base64
import hmac
import logging
import os
import re
import zlib
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import orjson

from bus import subjects
from bus.messages import ReviewRecord
from bus.transport.connection import Bus
from webhooks import answering, table
from webhooks.answering import Answer
from webhooks.review import Context, Review
from webhooks.server import Decision, outcome
from windowbox.errors import Malformed, WindowboxError
from windowbox.models.objects import Json, mapping
from windowbox.models.refs import RUNTIME, ObjectRef
from windowbox.models.webhooks import Target
from windowbox.settings.webhooksettings import PrometheusSettings, WebhookSettings
from windowbox.telemetry import metrics

logger = logging.getLogger(__name__)

CLUSTERS = {Target.SEED: RUNTIME, Target.SHOOT: "shoot", Target.GARDEN: "garden"}
"""The cluster of an object in the journal. Of which Shoot it is, a request does not tell."""

_LONGEST_QUEUE = 1024
_LARGEST_QUEUE = 32 << 20
"""Bytes of requests, and of what was looked up for them, that wait to be noted."""
_BIG = 64 << 10
"""Bytes of a request that is packed in a thread."""
_LARGEST = 512 << 10
"""Bytes of a packed request that is kept."""
_PATIENCE = 2.0
_PAUSE = 0.1
"""Seconds in which decisions are collected, so that those who ask meanwhile are answered first."""
_TOGETHER = 64
"""Decisions that are written at once."""
_USER = re.compile(rb'(https?://)[^/"\s\\]+@')
_URL = re.compile(rb'https?://[^"\s\\]+')
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_HIDING = os.urandom(32)
"""Hides the values of Secrets; the same values look the same, as long as we run."""


class Journal:
    """Decisions that wait to be noted."""

    def __init__(self, process: str, *, has_bus: bool = True) -> None:
        """Without a bus, nothing is noted by design, so that nothing counts as not noted."""
        self._process = process
        self._has_bus = has_bus
        self._waiting: deque[tuple[Decision, int]] = deque()
        self._noted = asyncio.Event()
        self._bytes = 0
        self._writing = False

    def note(self, decision: Decision) -> None:
        if not self._has_bus:
            return
        size = decision.size + _found_size(decision)
        if not self._writing or len(self._waiting) >= _LONGEST_QUEUE or self._bytes + size > _LARGEST_QUEUE:
            metrics.reviews_unnoted.inc()
            return
        self._bytes += size
        self._waiting.append((decision, size))
        self._noted.set()

    async def write(self, bus: Bus) -> None:
        """Write records to the bus; never returns. Records made while it does not run are dropped."""
        self._writing = True
        try:
            while True:
                await self._noted.wait()
                if len(self._waiting) < _TOGETHER:
                    await asyncio.sleep(_PAUSE)  # many at once cost less than one by one
                await asyncio.gather(*(self._write(bus, *one) for one in self._popped(_TOGETHER)))
        finally:
            self._writing = False
            metrics.reviews_unnoted.inc(len(self._popped(_LONGEST_QUEUE)))

    def _popped(self, most: int) -> list[tuple[Decision, int]]:
        """The first that wait, no longer counted among them."""
        some = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
        self._bytes -= sum(size for _, size in some)
        if not self._waiting:
            self._noted.clear()
        return some

    async def _write(self, bus: Bus, decision: Decision, size: int) -> None:
        noted = False
        try:
            if size > _BIG:
                key, record = await asyncio.to_thread(_encoded, decision, self._process)
            else:
                key, record = _encoded(decision, self._process)
            await bus.publish(subjects.review(key), record, timeout=_PATIENCE)
            noted = True
        except WindowboxError as error:
            logger.debug("a decision is not written to the journal: %s", error)
        finally:
            if not noted:
                metrics.reviews_unnoted.inc()


def _encoded(decision: Decision, process: str) -> tuple[str, bytes]:
    made = record(decision, process)
    return made.key, made.encoded()


def _found_size(decision: Decision) -> int:
    """Bytes of the object that was looked up."""
    try:
        return len(orjson.dumps(decision.context.found)) if decision.context.found is not None else 0
    except orjson.JSONEncodeError:  # nested too deep
        return _BIG


def record(decision: Decision, process: str) -> ReviewRecord:
    """What is noted of a decision."""
    review, registration = decision.review, decision.webhook.registration
    kind = f"{_plural(review)}.{review.group}" if review.group else _plural(review)
    ref = ObjectRef(CLUSTERS[registration.target], kind, review.namespace, review.name)
    return ReviewRecord(
        webhook=registration.name,
        key=subjects.key(ref),
        uid=review.uid,
        operation=review.operation,
        dry_run=review.dry_run,
        decided=datetime.now(UTC),
        seconds=decision.seconds,
        process=process,
        outcome=outcome(decision.answer),
        message=decision.answer.message,
        patch=[]
        if review.kind == "Secret"
        else orjson.loads(_without_credentials(decision.answer.patch) or b"[]"),
        request=_packed(decision),
    )


def unpacked(request: str) -> tuple[Review, Context]:
    """What a webhook was given."""
    try:
        given = orjson.loads(zlib.decompress(base64.b64decode(request)))
        settings = WebhookSettings(prometheus=PrometheusSettings.model_validate(given["prometheus"]))
        context = Context(settings, given["found"], given["failure"], given["images"])
        return Review(**given["review"]), context
    except (ValueError, TypeError, KeyError, zlib.error) as error:
        raise Malformed("a recorded review cannot be read") from error


def _packed(decision: Decision) -> str:
    review, context = decision.review, decision.context
    hidden = replace(
        review,
        object=harmless(review.object, review.kind),
        old_object=harmless(review.old_object, review.kind) if review.old_object is not None else None,
    )
    given = {
        "review": _fields(hidden),
        "found": harmless(context.found, "") if context.found is not None else None,
        "failure": context.failure,
        "images": context.images,
        "prometheus": context.settings.prometheus.model_dump(),
    }
    try:
        packed = zlib.compress(_without_credentials(orjson.dumps(given)), 1)
    except orjson.JSONEncodeError:  # nested too deep
        return ""
    return base64.b64encode(packed).decode() if len(packed) <= _LARGEST else ""


def _without_credentials(text: bytes) -> bytes:
    """JSON without user, password and query of URLs, such as those that a Prometheus writes to."""
    return _URL.sub(_without_query, _USER.sub(rb"\1hidden@", text))


def _without_query(url: re.Match[bytes]) -> bytes:
    address, mark, query = url[0].partition(b"?")
    return address + mark + b"hidden" if query else url[0]


def harmless(object: Json, kind: str) -> dict[str, Any]:
    """The object without values of Secrets, and without the copy that kubectl makes of it."""
    found = dict(object)
    metadata = mapping(found.get("metadata"))
    annotations = mapping(metadata.get("annotations"))
    if _LAST_APPLIED in annotations:
        metadata = {**metadata, "annotations": {k: v for k, v in annotations.items() if k != _LAST_APPLIED}}
    found["metadata"] = {name: value for name, value in metadata.items() if name != "managedFields"}
    if kind == "Secret":
        for field in ("data", "stringData"):
            if isinstance(values := found.get(field), Mapping):
                found[field] = {name: _hidden(value) for name, value in values.items()}
    return found


def _hidden(value: Any) -> Any:
    """Something else in the place of a value. What is empty stays so: webhooks tell it apart."""
    if not value:
        return value
    digest = hmac.digest(_HIDING, str(value).encode(), "sha256")
    return base64.b64encode(b"hidden " + digest[:9].hex().encode()).decode()


def _fields(review: Review) -> dict[str, Any]:
    # Not `asdict`, which copies objects.
    return {name: getattr(review, name) for name in Review.__dataclass_fields__}


def _plural(review: Review) -> str:
    return review.resource or review.kind.lower()


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
