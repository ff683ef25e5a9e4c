"""NetworkPolicies of Shoots: Pods reach the nodes of the seed, which Gardener blocks."""

from __future__ import annotations

from webhooks.review import Context, Lookup, Review, about
from webhooks.shapes import name, namespace, objects, part, put, text
from webhooks.webhook import Webhook
from windowbox.models.objects import Json
from windowbox.models.refs import CLUSTERS
from windowbox.models.webhooks import NETWORK_POLICY

_NAME = "allow-to-private-networks"


def lookup(review: Review) -> Lookup | None:
    if name(review) != _NAME:
        return None
    return Lookup(CLUSTERS, "", _cluster(review))


def act(review: Review, context: Context) -> Json | None:
    if name(review) != _NAME:
        return None
    cluster = context.looked_up()
    with about(f"Cluster {_cluster(review)}"):
        nodes = text(part(cluster, "spec", "seed", "spec", "networks"), "nodes")
    egress = objects(part(review.object, "spec"), "egress")
    if not nodes or not egress:
        return None
    return put(review.object, [_reaching(rule, nodes) for rule in egress], "spec", "egress")


def _cluster(review: Review) -> str:
    return namespace(review).removeprefix("infra-")


def _reaching(rule: Json, nodes: str) -> Json:
    peers = objects(rule, "to")
    return put(rule, [_without(peer, nodes) for peer in peers], "to") if peers else rule


def _without(peer: Json, nodes: str) -> Json:
    excepted = part(peer, "ipBlock").get("except")
    if not isinstance(excepted, list) or nodes not in excepted:
        return peer
    return put(peer, [one for one in excepted if one != nodes] or None, "ipBlock", "except")


WEBHOOK = Webhook(NETWORK_POLICY, act, lookup, skip_deleting=False)
