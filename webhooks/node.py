"""Nodes of Shoots: more capacity than the machine below them has, and a provider ID."""

from __future__ import annotations

from typing import Any

from webhooks.review import Context, Review
from webhooks.webhook import Webhook
from windowbox.models.objects import Json, mapping
from windowbox.models.webhooks import NODE

_CAPACITY = {"cpu": "100", "memory": "100Gi"}


def act(review: Review, context: Context) -> Json:
    spec, status = mapping(review.object.get("spec")), mapping(review.object.get("status"))
    changed: dict[str, Any] = dict(review.object)
    # machine-controller-manager acts on a node group only once its nodes have a provider ID.
    changed["spec"] = {**spec, "providerID": spec.get("providerID") or review.name}
    changed["status"] = dict(status) | {
        part: {**mapping(status.get(part)), **_CAPACITY} for part in ("allocatable", "capacity")
    }
    return changed


WEBHOOK = Webhook(NODE, act, skip_deleting=False)
