"""Nodes of Shoots: more capacity than the machine below them has, and a provider ID."""

from __future__ import annotations

from webhooks import quantities
from webhooks.review import Context, Review
from webhooks.shapes import name, part, put, text
from webhooks.webhook import Webhook
from windowbox.models.objects import Json
from windowbox.models.webhooks import NODE

_CAPACITY = {"cpu": "100", "memory": "100Gi"}


def act(review: Review, context: Context) -> Json:
    changed = review.object
    if not text(part(changed, "spec"), "providerID"):
        # machine-controller-manager acts on a node group only once its nodes have a provider ID.
        changed = put(changed, name(review), "spec", "providerID")
    for field in ("allocatable", "capacity"):
        found = part(changed, "status", field)
        changed = put(changed, {**found, **quantities.spelled(found, _CAPACITY)}, "status", field)
    return changed


WEBHOOK = Webhook(NODE, act, skip_deleting=False)
