"""Objects of control planes that gardenlet writes: what runs machines and kubelets of this provider."""

from __future__ import annotations

from webhooks import operatingsystemconfig, sidecar
from webhooks.review import Context, Lookup, Review
from webhooks.shapes import name, namespace, put
from webhooks.webhook import WITH_YAML, Webhook
from windowbox.models.objects import Json, Object
from windowbox.models.refs import CLUSTERS
from windowbox.models.webhooks import CONTROL_PLANE

_MANAGER = "machine-controller-manager"


def lookup(review: Review) -> Lookup | None:
    """The Cluster, for those that depend on the Shoot."""
    depends = _is_manager(review) or (review.kind == "OperatingSystemConfig" and _is_for_nodes(review))
    return Lookup(CLUSTERS, "", namespace(review)) if depends else None


def act(review: Review, context: Context) -> Json | None:
    match review.kind, name(review):
        case "Deployment", "machine-controller-manager":
            return sidecar.added(review, context)
        case "Deployment", "kube-scheduler":
            # Only a probe: tests of Gardener learn by it that the webhook is active.
            labels = ("spec", "template", "metadata", "labels", "injected-by")
            return put(review.object, "provider-local", *labels)
        case "VerticalPodAutoscaler", "machine-controller-manager-vpa":
            return sidecar.scaled(review.object)
        case "OperatingSystemConfig", _ if _is_for_nodes(review):
            return operatingsystemconfig.for_machines(review, context)
        case _:
            return None


def _is_manager(review: Review) -> bool:
    return review.kind == "Deployment" and name(review) == _MANAGER


def _is_for_nodes(review: Review) -> bool:
    return Object(review.object).spec.get("purpose") == "reconcile"


WEBHOOK = Webhook(CONTROL_PLANE, act, lookup, big=WITH_YAML)
