"""Objects in seeds: NetworkPolicies, Prometheus, Gardener's API server, and Pods that resolve Shoots."""

from __future__ import annotations

from webhooks import clustershoots
from webhooks.review import Context, Lookup, Review, Undecodable, Webhook, about
from webhooks.shapes import name, namespace, objects, part, put, text
from windowbox.models import webhooks as registrations
from windowbox.models.objects import Json, Object
from windowbox.models.refs import SERVICES

_POLICY = "allow-to-private-networks"

_PROMETHEUSES = ("garden", "longterm", "seed")
_TO_PRIVATE_NETWORKS = "networking.gardener.cloud/to-private-networks"
_RELABELLING = (
    {"sourceLabels": ["job"], "regex": "gardenlet", "action": "keep"},
    {"sourceLabels": ["__name__"], "regex": "(up|flow_.+|gardenlet_.+)", "action": "keep"},
)

_MIN_READY_SECONDS = 5

_DNS_SERVER = "gardener-extension-provider-local-coredns"
_TO_DNS_SERVER = f"networking.resources.gardener.cloud/to-{_DNS_SERVER}-coredns"
_TO_INGRESSES = "networking.resources.gardener.cloud/to-all-istio-ingresses-istio-ingressgateway-tcp-9443"
_DNS_LABELS = dict.fromkeys(
    # NetworkPolicies name ports of the container, not of its Service.
    (
        "networking.gardener.cloud/to-istio-ingressgateway",
        f"{_TO_DNS_SERVER}-tcp-9053",
        f"{_TO_DNS_SERVER}-udp-9053",
    ),
    "allowed",
)


def open_nodes(review: Review, context: Context) -> Json | None:
    """The policy without the exception for the seed's nodes, which control planes need to reach."""
    if name(review) != _POLICY:
        return None
    wanted = clustershoots.lookup(namespace(review).removeprefix("infra-"))
    cluster = context.looked_up(wanted)
    with about(f"Cluster {wanted.name}"):
        nodes = text(part(cluster, "spec", "seed", "spec", "networks"), "nodes")
    egress = objects(part(review.object, "spec"), "egress")
    if not nodes or not egress:
        return None

    def reaching(peer: Json) -> Json:
        excepted = part(peer, "ipBlock").get("except")
        if not isinstance(excepted, list) or nodes not in excepted:
            return peer
        return put(peer, [one for one in excepted if one != nodes] or None, "ipBlock", "except")

    rules = [
        put(rule, [reaching(peer) for peer in peers], "to") if (peers := objects(rule, "to")) else rule
        for rule in egress
    ]
    return put(review.object, rules, "spec", "egress")


def configure_prometheus(review: Review, context: Context) -> Json | None:
    """Prometheus with a short grace period; that of the seed also with remote write."""
    if name(review) not in _PROMETHEUSES:
        return None
    changed = put(review.object, 60, "spec", "terminationGracePeriodSeconds")
    if name(review) != "seed":
        return changed
    settings = context.settings.prometheus
    # Our labels win over Gardener's, and our remote write replaces any other.
    if settings.external_labels:
        labels = {**part(changed, "spec", "externalLabels"), **settings.external_labels}
        changed = put(changed, labels, "spec", "externalLabels")
    changed = put(changed, "allowed", "spec", "podMetadata", "labels", _TO_PRIVATE_NETWORKS)
    writes = [{"url": url, "writeRelabelConfigs": [*_RELABELLING]} for url in settings.remote_write_urls]
    return put(changed, writes or None, "spec", "remoteWrite")


def roll_out_soon(review: Review, _: Context) -> Json:
    """Gardener's API server with Pods that are ready, and end, within seconds."""
    changed = review.object
    min_ready = part(changed, "spec").get("minReadySeconds") or 0
    if not isinstance(min_ready, int):
        raise Undecodable("spec.minReadySeconds is not a number")
    if min_ready > _MIN_READY_SECONDS:
        changed = put(changed, _MIN_READY_SECONDS, "spec", "minReadySeconds")
    pod = put(part(changed, "spec", "template", "spec"), 3, "terminationGracePeriodSeconds")
    containers = []
    for container in objects(pod, "containers"):
        # Containers without a probe are ready at once.
        if container.get("readinessProbe") is not None:
            probe = {**part(container, "readinessProbe"), "initialDelaySeconds": 3, "periodSeconds": 5}
            container = put(container, probe, "readinessProbe")
        containers.append(container)
    if containers:
        pod = put(pod, containers, "containers")
    return put(changed, pod, "spec", "template", "spec")


def resolve_shoots(review: Review, context: Context) -> Json | None:
    """Pods that resolve names of Shoots through our DNS server: for Gardener before v1.138."""
    if review.kind == "Pod":
        # A Pod's spec is immutable, and the prober's Pods get theirs from their Deployment.
        labels = Object(review.object).labels
        if review.old_object is not None or labels.get("app") == "dependency-watchdog-prober":
            return None
    service = context.looked_up(Lookup(SERVICES, _DNS_SERVER, "coredns"))
    with about(f"Service {_DNS_SERVER}/coredns"):
        servers = part(service, "spec").get("clusterIPs") or []
    domain = "svc.cluster.local"
    config = {
        "nameservers": servers,
        "searches": [f"{namespace(review)}.{domain}", domain, "cluster.local"],
        "options": [{"name": "ndots", "value": "5"}],
    }
    path = () if review.kind == "Pod" else ("spec", "template")
    changed = put(review.object, config, *path, "spec", "dnsConfig")
    changed = put(changed, "None", *path, "spec", "dnsPolicy")
    labels = {**part(changed, *path, "metadata", "labels"), **_DNS_LABELS}
    is_machine = labels.get("app") == "machine" and labels.get("machine-provider") == "local"
    if review.kind == "Pod" and is_machine:
        labels[_TO_INGRESSES] = "allowed"
    return put(changed, labels, *path, "metadata", "labels")


NETWORK_POLICY = Webhook(registrations.NETWORK_POLICY, open_nodes, skip_deleting=False)
PROMETHEUS = Webhook(registrations.PROMETHEUS, configure_prometheus)
ROLLOUT_SPEEDUP = Webhook(registrations.ROLLOUT_SPEEDUP, roll_out_soon)
DNS_CONFIG = Webhook(registrations.DNS_CONFIG, resolve_shoots)
