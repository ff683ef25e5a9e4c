"""Decisions of a webhook about an object, called as the server calls it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson

from tests.support.admissionexamples import IMAGES
from tests.support.reviews import admission_review, changed
from webhooks import answering
from webhooks.answering import Answer
from webhooks.review import Context, Found, Review, Wanted, Webhook
from webhooks.table import WEBHOOKS
from windowbox.settings.webhooksettings import WebhookSettings

Json = dict[str, Any]
DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def resource(
    kind: str,
    name: str = "any",
    /,
    namespace: str = "shoot--local--local",
    *,
    metadata: Any = None,
    **parts: Any,
) -> Json:
    """An object of a kind such as `apps/v1 Deployment`; `parts` are its spec, its data and so on."""
    version, _, kind = kind.rpartition(" ")
    head = {"name": name, "namespace": namespace, **(metadata or {})}
    return {"apiVersion": version, "kind": kind, "metadata": head, **parts}


def answered(
    webhook: str,
    object: Json,
    *,
    found: Json | None = None,
    failure: str = "not found",
    old: Json | None = None,
    settings: WebhookSettings | None = None,
    images: dict[str, str] = IMAGES,
    driver: bool = True,
) -> Answer:
    """The answer of the webhook of that name; `found` is the other object that it looks up."""
    asked = WEBHOOKS[webhook]
    resource = next(r.resource for r in asked.registration.rules if r.kind == object["kind"])
    operation = "CREATE" if old is None else "UPDATE"
    body = orjson.dumps(admission_review(object, resource, operation=operation, oldObject=old))
    read = answering.read(asked, body)
    if isinstance(read, tuple):
        return read[0]
    context = Context(settings or WebhookSettings(), images=images, driver=driver)
    return decided(asked, read.review, context, Found(found, failure, missing=found is None))


def decided(webhook: Webhook, review: Review, context: Context, found: Found) -> Answer:
    """The decision of a webhook that looks up one object at most."""
    try:
        return answering.decide(webhook, review, context)
    except Wanted as wanted:
        objects = {wanted.lookup.key: found}
        return answering.decide(webhook, review, replace(context, objects=objects))


def admitted(webhook: str, object: Json, **more: Any) -> Any:
    """The object as it is stored."""
    answer = answered(webhook, object, **more)
    assert answer.allowed, answer.message
    return changed(orjson.loads(orjson.dumps(object)), answer)


def refusal(webhook: str, object: Json, **more: Any) -> str:
    """Why the object is not stored."""
    answer = answered(webhook, object, **more)
    assert not answer.allowed
    assert answer.code in (400, 403)
    return answer.message
