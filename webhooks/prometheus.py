"""Prometheus of garden and seed: it ends soon, and that of the seed writes to a remote one."""

from __future__ import annotations

from webhooks.review import Context, Review
from webhooks.shapes import name, part, put
from webhooks.webhook import Webhook
from windowbox.models.objects import Json
from windowbox.models.webhooks import PROMETHEUS

_NAMES = ("garden", "longterm", "seed")
_TO_PRIVATE_NETWORKS = "networking.gardener.cloud/to-private-networks"
_RELABELLING = (
    {"sourceLabels": ["job"], "regex": "gardenlet", "action": "keep"},
    {"sourceLabels": ["__name__"], "regex": "(up|flow_.+|gardenlet_.+)", "action": "keep"},
)


def act(review: Review, context: Context) -> Json | None:
    if name(review) not in _NAMES:
        return None
    changed = put(review.object, 60, "spec", "terminationGracePeriodSeconds")
    if name(review) != "seed":
        return changed
    settings = context.settings.prometheus
    if settings.external_labels:
        labels = {**part(changed, "spec", "externalLabels"), **settings.external_labels}
        changed = put(changed, labels, "spec", "externalLabels")
    changed = put(changed, "allowed", "spec", "podMetadata", "labels", _TO_PRIVATE_NETWORKS)
    writes = [{"url": url, "writeRelabelConfigs": [*_RELABELLING]} for url in settings.remote_write_urls]
    return put(changed, writes or None, "spec", "remoteWrite")


WEBHOOK = Webhook(PROMETHEUS, act)
