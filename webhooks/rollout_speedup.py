"""Gardener's API server in the garden: new Pods are ready, and old ones gone, within seconds."""

from __future__ import annotations

from webhooks.review import Context, Review, Undecodable
from webhooks.shapes import objects, part, put
from webhooks.webhook import Webhook
from windowbox.models.objects import Json
from windowbox.models.webhooks import ROLLOUT_SPEEDUP

_READY = 5


def act(review: Review, context: Context) -> Json:
    changed = review.object
    waits = part(changed, "spec").get("minReadySeconds") or 0
    if not isinstance(waits, int):
        raise Undecodable("spec.minReadySeconds is not a number")
    if waits > _READY:
        changed = put(changed, _READY, "spec", "minReadySeconds")
    pod = put(part(changed, "spec", "template", "spec"), 3, "terminationGracePeriodSeconds")
    if containers := objects(pod, "containers"):
        pod = put(pod, [_probed(container) for container in containers], "containers")
    return put(changed, pod, "spec", "template", "spec")


def _probed(container: Json) -> Json:
    if container.get("readinessProbe") is None:
        return container
    probe = {**part(container, "readinessProbe"), "initialDelaySeconds": 3, "periodSeconds": 5}
    return put(container, probe, "readinessProbe")


WEBHOOK = Webhook(ROLLOUT_SPEEDUP, act)
