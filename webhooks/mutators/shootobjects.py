"""Objects in Shoots: Nodes, the configuration of kube-proxy, and Calico."""

from __future__ import annotations

import json

from webhooks import clustershoots, shapes
from webhooks.mutators import componentconfig
from webhooks.review import WITH_YAML, Context, Denied, Review, Webhook, about
from webhooks.shapes import name, named, objects, part, put, text
from windowbox.models import machinekeys
from windowbox.models import webhooks as registrations
from windowbox.models.objects import Json, mapping

_CAPACITY = {"cpu": "100", "memory": "100Gi"}

_PROXY_CONFIG = "config.yaml"

_CLUSTER = "kube-system"
_POOL = {
    "name": "CALICO_IPV4POOL_CIDR",
    # The first half of the Shoot's range for Pods, 10.0.0.0/15, is that of machines.
    "value": "10.1.0.0/16",
}


def enlarge_node(review: Review, _: Context) -> Json:
    """The Node with more capacity than its machine has, and with a provider ID."""
    changed = review.object
    if not text(part(changed, "spec"), "providerID"):
        # machine-controller-manager acts on a node group only once its nodes have a provider ID.
        # API servers ignore it in updates of the status.
        changed = put(changed, name(review), "spec", "providerID")
    # Each report of the kubelet restores its own values, and is reviewed in turn.
    for field in ("allocatable", "capacity"):
        found = part(changed, "status", field)
        changed = put(changed, {**found, **shapes.spelled(found, _CAPACITY)}, "status", field)
    return changed


def size_node(review: Review, _: Context) -> Json | None:
    """The Node with the CPU and memory of its instance: kubelets report those of their host."""
    changed = review.object
    try:
        given = json.loads(text(part(changed, "metadata", "annotations"), machinekeys.CAPACITY))
    except (ValueError, RecursionError):
        return None  # users of the Shoot write annotations
    has = {name: str(one) for name, one in mapping(given).items() if name in _CAPACITY}
    for field in ("allocatable", "capacity"):
        found = part(changed, "status", field)
        wanted = {name: one for name, one in has.items() if _is_less(one, found.get(name))}
        changed = put(changed, {**found, **wanted}, "status", field) if wanted else changed
    return changed


def _is_less(one: str, other: object) -> bool:
    less, more = shapes.value(one), shapes.value(other)
    return less is not None and more is not None and 0 < less < more


def configure_proxy(review: Review, _: Context) -> Json | None:
    """The ConfigMap with a kube-proxy that leaves the host's connection tracking alone."""
    data = part(review.object, "data")
    # These ConfigMaps are immutable, and their names end in a hash of the data that gardenlet wrote.
    if not name(review).startswith("kube-proxy-config") or _PROXY_CONFIG not in data:
        return None
    try:
        config = componentconfig.keep_conntrack(text(data, _PROXY_CONFIG))
    except componentconfig.Unreadable as error:
        raise Denied(f"{_PROXY_CONFIG} is not a KubeProxyConfiguration: {error}") from error
    return put(review.object, config, "data", _PROXY_CONFIG)


def shrink_pool(review: Review, context: Context) -> Json | None:
    """Calico's DaemonSet with a smaller range for Pods, unless Gardener manages the infrastructure."""
    cluster = context.looked_up(clustershoots.lookup(_CLUSTER), "failed reading Cluster resource: ")
    with about(clustershoots.shoot_in(_CLUSTER)):
        # A Cluster without a Shoot counts as unmanaged, as for Gardener.
        managed = clustershoots.managed_infrastructure(part(cluster, "spec", "shoot"))
    if managed:
        return None
    pod = part(review.object, "spec", "template", "spec")
    for field in ("containers", "initContainers"):
        containers = [
            put(one, named(objects(one, "env"), _POOL, "name"), "env")
            if one.get("name") == "calico-node"
            else one
            for one in objects(pod, field)
        ]
        if containers:
            pod = put(pod, containers, field)
    return put(review.object, pod, "spec", "template", "spec") if pod else None


INSTANCE = Webhook(registrations.INSTANCE, size_node, skip_deleting=False)
NODE = Webhook(registrations.NODE, enlarge_node, skip_deleting=False)
KUBE_PROXY = Webhook(registrations.SHOOT, configure_proxy, big=WITH_YAML)
CALICO = Webhook(registrations.CALICO_SELF_HOSTED_SHOOT, shrink_pool)
