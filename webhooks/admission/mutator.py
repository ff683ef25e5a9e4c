"""Shoots get a mark, and NamespacedCloudProfiles in their status the images of both profiles."""

from __future__ import annotations

from typing import Any

from webhooks.admission import namespacedprofiles
from webhooks.review import Context, Review
from webhooks.shapes import part, put
from webhooks.webhook import Webhook
from windowbox.models.objects import Json
from windowbox.models.webhooks import MUTATOR

_MARK = "extensions.gardener.cloud/processed-by"
_IN_STATUS = ("status", "cloudProfileSpec", "providerConfig")


def act(review: Review, context: Context) -> Json | None:
    match review.kind:
        case "Shoot":
            return _marked(review.object)
        case "NamespacedCloudProfile":
            return _merged(review.object)
        case _:
            return None


def _marked(shoot: Json) -> Json | None:
    """Tests of Gardener learn by the annotation that the webhook is active."""
    if _MARK in part(shoot, "metadata", "annotations"):
        return None
    return put(shoot, "admission-webhook-local-provider", "metadata", "annotations", _MARK)


def _merged(profile: Json) -> Json | None:
    metadata, spec, status = (part(profile, field) for field in ("metadata", "spec", "status"))
    in_status = part(status, "cloudProfileSpec").get("providerConfig")
    if metadata.get("generation") != status.get("observedGeneration"):
        return None
    if spec.get("providerConfig") is None or in_status is None:
        return None
    config: dict[str, Any] = namespacedprofiles.merged(profile)
    return put(profile, config, *_IN_STATUS)


WEBHOOK = Webhook(MUTATOR, act)
