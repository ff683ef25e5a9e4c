"""Records decisions of webhooks in the stream REVIEWS, and replays them. Recording delays no answer."""

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
from bus.leases import guard
from bus.messages import ReviewRecord
from bus.transport.connection import Bus
from webhooks import answering, table
from webhooks.answering import Answer
from webhooks.review import Context, Found, Review, Wanted
from webhooks.server import Decision
from windowbox.errors import Malformed, WindowboxError
from windowbox.models.objects import Json, mapping
from windowbox.models.refs import RUNTIME, SECRETS, ObjectRef
from windowbox.models.webhooks import Target
from windowbox.settings.webhooksettings import PrometheusSettings, WebhookSettings
from windowbox.telemetry import metrics

logger = logging.getLogger(__name__)

CLUSTERS = {Target.SEED: RUNTIME, Target.SHOOT: "shoot", Target.GARDEN: "garden"}
"""The cluster of an object in the journal. A request does not say from which Shoot it comes."""

_LONGEST_QUEUE = 1024
_LARGEST_QUEUE = 32 << 20
"""Bytes of requests and looked-up objects in the queue."""
_BIG = 64 << 10
"""Bytes of a request from which on it is packed in a thread."""
_LARGEST = 512 << 10
"""Bytes of a packed request; a larger one is not kept."""
_PATIENCE = 2.0
_PAUSE = 0.1
"""Seconds in which decisions are collected: pending requests are answered first."""
_TOGETHER = 64
"""Decisions that are written at once."""
_USER = re.compile(rb'(https?://)[^/"\s\\]+@')
_URL = re.compile(rb'https?://[^"\s\\]+')
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_HIDING = os.urandom(32)
"""Key of the digests that replace values of Secrets: equal values stay equal within this process."""


class Journal:
    """The queue of decisions for the bus. When it is full, decisions are dropped and counted."""

    def __init__(self, process: str, *, has_bus: bool = True) -> None:
        """Without a bus, nothing is recorded, and nothing counts as dropped."""
        self._process = process
        self._has_bus = has_bus
        self._waiting: deque[tuple[Decision, int]] = deque()
        self._noted = asyncio.Event()
        self._bytes = 0
        self._writing = False

    def note(self, decision: Decision) -> None:
        if not self._has_bus:
            return
        size = decision.weight
        for found in decision.context.objects.values():
            try:
                size += len(orjson.dumps(found.object))
            except orjson.JSONEncodeError:  # nested too deep
                size += _BIG
        if not self._writing or len(self._waiting) >= _LONGEST_QUEUE or self._bytes + size > _LARGEST_QUEUE:
            metrics.reviews_unnoted.inc()
            return
        self._bytes += size
        self._waiting.append((decision, size))
        self._noted.set()

    async def write(self, bus: Bus) -> None:
        """Write records to the bus; never returns. Decisions made while it does not run are dropped."""
        self._writing = True
        try:
            while True:
                await self._noted.wait()
                if len(self._waiting) < _TOGETHER:
                    await asyncio.sleep(_PAUSE)  # one batch costs less than single records
                encoded = asyncio.Event()
                async with asyncio.TaskGroup() as group:
                    for _ in range(min(_TOGETHER, len(self._waiting))):
                        ((decision, size),) = self._popped(1)
                        group.create_task(self._publish(bus, decision, size, encoded))
                        # One record takes a third of a millisecond: reviews that came meanwhile go first.
                        await asyncio.sleep(0)
                    encoded.set()
        finally:
            self._writing = False
            metrics.reviews_unnoted.inc(len(self._popped(_LONGEST_QUEUE)))

    def _popped(self, most: int) -> list[tuple[Decision, int]]:
        """The first decisions of the queue, which are removed from it."""
        some = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
        self._bytes -= sum(size for _, size in some)
        if not self._waiting:
            self._noted.clear()
        return some

    async def _publish(self, bus: Bus, decision: Decision, size: int, together: asyncio.Event) -> None:
        """Write a record, together with others: they share a write to the socket."""

        def encoded() -> tuple[str, bytes]:
            made = record(decision, self._process)
            return made.key, made.encoded()

        noted = False
        try:
            key, message = await asyncio.to_thread(encoded) if size > _BIG else encoded()
            await together.wait()
            await bus.publish(subjects.review(key), message, timeout=_PATIENCE)
            noted = True
        except WindowboxError as error:
            logger.debug("a decision is not written to the journal: %s", error)
        except Exception as error:  # a bug, triggered by the object
            guard.note("journal", error, f"a decision of {decision.webhook.registration.name} is left out")
        finally:
            if not noted:  # also when cancelled
                metrics.reviews_unnoted.inc()


def record(decision: Decision, process: str) -> ReviewRecord:
    """The record of a decision, without secrets."""
    review, registration = decision.review, decision.webhook.registration
    plural = review.resource or review.kind.lower()
    kind = f"{plural}.{review.group}" if review.group else plural
    ref = ObjectRef(CLUSTERS[registration.target], kind, review.namespace, review.name)
    patch = b"" if review.kind == "Secret" else decision.answer.patch
    return ReviewRecord(
        webhook=registration.name,
        key=subjects.key(ref),
        uid=review.uid,
        operation=review.operation,
        dry_run=review.dry_run,
        decided=datetime.now(UTC),
        seconds=decision.seconds,
        process=process,
        outcome=decision.answer.outcome,
        message=decision.answer.message,
        patch=orjson.loads(_without_credentials(patch) or b"[]"),
        request="" if _has_secrets(decision) else packed(review, decision.context),
    )


def _has_secrets(decision: Decision) -> bool:
    """Whether a cloud decided by values of Secrets: without these, the decision cannot be repeated."""
    keys = [f"{SECRETS.id}/"] if decision.review.kind == "Secret" else decision.context.objects
    is_of_cloud = decision.webhook.registration.cloud
    return bool(is_of_cloud) and any(key.startswith(f"{SECRETS.id}/") for key in keys)


def packed(review: Review, context: Context) -> str:
    """The webhook's arguments, compressed; empty if they are too large."""
    hidden = replace(
        review,
        object=harmless(review.object, review.kind),
        old_object=harmless(review.old_object, review.kind) if review.old_object is not None else None,
    )
    given = {
        # Not `asdict`, which copies objects.
        "review": {name: getattr(hidden, name) for name in Review.__dataclass_fields__},
        "objects": {
            key: [None if object is None else harmless(object, ""), *reason]
            for key, (object, *reason) in context.objects.items()
        },
        "images": context.images,
        "driver": context.driver,
        "prometheus": context.settings.prometheus.model_dump(),
    }
    try:
        data = zlib.compress(_without_credentials(orjson.dumps(given)), 1)
    except orjson.JSONEncodeError:  # nested too deep
        return ""
    return base64.b64encode(data).decode() if len(data) <= _LARGEST else ""


def unpacked(request: str) -> tuple[Review, Context]:
    """The webhook's arguments in a record."""
    try:
        given = orjson.loads(zlib.decompress(base64.b64decode(request)))
        settings = WebhookSettings(prometheus=PrometheusSettings.model_validate(given["prometheus"]))
        objects = {key: Found(*found) for key, found in given["objects"].items()}
        # Earlier records do not say whether there is a driver.
        context = Context(settings, objects, given["images"], given.get("driver", True))
        return Review(**given["review"]), context
    except (ValueError, TypeError, KeyError, zlib.error) as error:
        raise Malformed("a recorded review cannot be read") from error


def _without_credentials(text: bytes) -> bytes:
    """JSON without user, password and query of URLs, such as those of Prometheus' remote write."""

    def without_query(url: re.Match[bytes]) -> bytes:
        address, mark, query = url[0].partition(b"?")
        return address + mark + b"hidden" if query else url[0]

    return _URL.sub(without_query, _USER.sub(rb"\1hidden@", text))


def harmless(object: Json, kind: str) -> dict[str, Any]:
    """The object without values of Secrets, managedFields and kubectl's copy of it."""

    def hidden(value: Any) -> Any:
        if not value:
            return value  # webhooks decide by whether a value is empty
        digest = hmac.digest(_HIDING, str(value).encode(), "sha256")
        return base64.b64encode(b"hidden " + digest[:9].hex().encode()).decode()

    found = dict(object)
    metadata = mapping(found.get("metadata"))
    annotations = mapping(metadata.get("annotations"))
    if _LAST_APPLIED in annotations:
        metadata = {**metadata, "annotations": {k: v for k, v in annotations.items() if k != _LAST_APPLIED}}
    found["metadata"] = {name: value for name, value in metadata.items() if name != "managedFields"}
    if kind == "Secret":
        for field_name in ("data", "stringData"):
            if isinstance(values := found.get(field_name), Mapping):
                found[field_name] = {name: hidden(value) for name, value in values.items()}
    return found


@dataclass(frozen=True)
class Difference:
    """A recorded review that today's code answers differently."""

    review: ReviewRecord
    now: Answer


@dataclass
class Replay:
    """The result of replaying recorded reviews."""

    replayed: int = 0
    left_out: int = 0
    """Records that were too large to be kept or cannot be read, or whose webhook is unknown or wants more."""
    differences: list[Difference] = field(default_factory=list)


def replayed(reviews: Iterable[ReviewRecord]) -> Replay:
    """Answer the reviews with today's webhooks, and compare."""
    result = Replay()
    for review in reviews:
        webhook = table.WEBHOOKS.get(review.webhook)
        if webhook is None:
            result.left_out += 1
            continue
        try:
            now = answering.decide(webhook, *unpacked(review.request))
        except (Malformed, Wanted):
            result.left_out += 1
            continue
        result.replayed += 1
        # Patches of Secrets are not recorded; only clouds make some, whose reviews of Secrets are left out.
        patched_otherwise = review.patch and review.patch != orjson.loads(now.patch or b"[]")
        if (review.outcome, review.message) != (now.outcome, now.message) or patched_otherwise:
            result.differences.append(Difference(review, now))
    return result
