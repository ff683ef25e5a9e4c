"""Notes what webhooks decide in the journal. It delays no answer, and loses notes rather than answers."""

from __future__ import annotations

import asyncio
import base64
import hmac
import logging
import os
import zlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import orjson

from bus import subjects
from bus.connection import Bus
from bus.messages import ReviewRecord
from webhooks.review import Context, Review
from webhooks.server import Decision, outcome
from windowbox.errors import Malformed, WindowboxError
from windowbox.models.objects import Json, mapping
from windowbox.models.refs import RUNTIME, ObjectRef
from windowbox.models.webhooks import Target
from windowbox.models.webhooksettings import PrometheusSettings, WebhookSettings
from windowbox.telemetry import metrics

logger = logging.getLogger(__name__)

CLUSTERS = {Target.SEED: RUNTIME, Target.SHOOT: "shoot", Target.GARDEN: "garden"}
"""The cluster of an object in the journal. Of which Shoot it is, a request does not tell."""

_LONGEST_QUEUE = 1024
_LARGEST_QUEUE = 32 << 20
"""Bytes of requests that wait to be noted."""
_BIG = 64 << 10
"""Bytes of a request that is packed in a thread."""
_LARGEST = 512 << 10
"""Bytes of a packed request that is kept."""
_PATIENCE = 2.0
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_HIDING = os.urandom(32)
"""Hides the values of Secrets; the same values look the same, as long as we run."""


class Journal:
    """Decisions that wait to be noted."""

    def __init__(self, process: str) -> None:
        self._process = process
        self._waiting: asyncio.Queue[Decision] = asyncio.Queue(_LONGEST_QUEUE)
        self._bytes = 0

    def note(self, decision: Decision) -> None:
        if self._waiting.full() or self._bytes + decision.size > _LARGEST_QUEUE:
            metrics.reviews_unnoted.inc()
            return
        self._bytes += decision.size
        self._waiting.put_nowait(decision)

    async def write(self, bus: Bus) -> None:
        """Write to the bus, for ever."""
        while True:
            decision = await self._waiting.get()
            self._bytes -= decision.size
            try:
                record = await self._record(decision)
                await bus.publish(subjects.review(record.key), record.encoded(), timeout=_PATIENCE)
            except WindowboxError as error:
                metrics.reviews_unnoted.inc()
                logger.debug("a decision is not noted: %s", error)

    async def _record(self, decision: Decision) -> ReviewRecord:
        if decision.size > _BIG:
            return await asyncio.to_thread(record, decision, self._process)
        return record(decision, self._process)


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
        patch=[] if review.kind == "Secret" else orjson.loads(decision.answer.patch or b"[]"),
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
        packed = zlib.compress(orjson.dumps(given), 1)
    except orjson.JSONEncodeError:  # nested too deep
        return ""
    return base64.b64encode(packed).decode() if len(packed) <= _LARGEST else ""


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
