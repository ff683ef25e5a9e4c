"""Calico in self-hosted Shoots whose machines Gardener does not create: a smaller range for Pods."""

from __future__ import annotations

from webhooks import clusters
from webhooks.review import Context, Lookup, Review, about
from webhooks.shapes import named, objects, part, put
from webhooks.webhook import Webhook
from windowbox.models.objects import Json
from windowbox.models.refs import CLUSTERS
from windowbox.models.webhooks import CALICO_SELF_HOSTED_SHOOT

_POOL = {
    "name": "CALICO_IPV4POOL_CIDR",
    # The first half of the Shoot's range for Pods, 10.0.0.0/15, is that of machines.
    "value": "10.1.0.0/16",
}


_CLUSTER = "kube-system"


def lookup(review: Review) -> Lookup:
    return Lookup(CLUSTERS, "", _CLUSTER)


def act(review: Review, context: Context) -> Json | None:
    cluster = context.looked_up("failed reading Cluster resource: ")
    with about(clusters.shoot_in(_CLUSTER)):
        managed = clusters.managed_infrastructure(part(cluster, "spec", "shoot"))
    if managed:
        return None
    pod = part(review.object, "spec", "template", "spec")
    for field in ("containers", "initContainers"):
        if containers := objects(pod, field):
            pod = put(pod, [_pooled(container) for container in containers], field)
    return put(review.object, pod, "spec", "template", "spec") if pod else None


def _pooled(container: Json) -> Json:
    if container.get("name") != "calico-node":
        return container
    return put(container, named(objects(container, "env"), _POOL, "name"), "env")


WEBHOOK = Webhook(CALICO_SELF_HOSTED_SHOOT, act, lookup)
