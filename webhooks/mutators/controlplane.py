"""Objects of control planes: machine-controller-manager gets the driver for local machines."""

from __future__ import annotations

from typing import Any

from webhooks import clustershoots, shapes
from webhooks.mutators import operatingsystemconfig
from webhooks.review import WITH_YAML, Context, Review, Webhook, about
from webhooks.shapes import name, named, namespace, objects, part, put
from windowbox.models import webhooks as registrations
from windowbox.models.objects import Json, Object

_DRIVER = "machine-controller-manager-provider-local"
"""Name of the driver's container, and of its image."""
_KUBECONFIG = "/var/run/secrets/gardener.cloud/shoot/generic-kubeconfig"
_PORT = 10259
_REQUESTS = {"cpu": "10m", "memory": "20Mi"}


def change_control_plane(review: Review, context: Context) -> Json | None:
    match review.kind, name(review):
        case "Deployment", "machine-controller-manager":
            return _add_driver(review, context) if context.driver else _remove_driver(review)
        case "Deployment", "kube-scheduler":
            # Gardener's tests see by this label that the webhook is active.
            labels = ("spec", "template", "metadata", "labels", "injected-by")
            return put(review.object, "provider-local", *labels)
        case "VerticalPodAutoscaler", "machine-controller-manager-vpa" if context.driver:
            policy = {"containerName": _DRIVER, "controlledValues": "RequestsOnly"}
            found = objects(part(review.object, "spec", "resourcePolicy"), "containerPolicies")
            # Its place is irrelevant: a policy for a name takes precedence over gardenlet's for `*`.
            policies = named(found, policy, "containerName")
            return put(review.object, policies, "spec", "resourcePolicy", "containerPolicies")
        case "OperatingSystemConfig", _ if Object(review.object).spec.get("purpose") == "reconcile":
            return operatingsystemconfig.for_machines(review, context)
        case _:
            return None


def _add_driver(review: Review, context: Context) -> Json:
    """The Deployment with the driver as a container, in the place of an older one."""
    cluster = context.looked_up(clustershoots.lookup(namespace(review)), "failed reading Cluster: ")
    shoot = clustershoots.shoot(cluster, namespace(review))
    with about(clustershoots.shoot_in(namespace(review))):
        hosted = not clustershoots.self_hosted(shoot)
    container = _driver(context.image(_DRIVER), namespace(review), hosted)
    found = objects(part(review.object, "spec", "template", "spec"), "containers")
    former = next((one for one in found if one.get("name") == _DRIVER), {})
    requests = shapes.spelled(part(former, "resources", "requests"), _REQUESTS)
    # An older container is replaced as a whole. The API server restores the defaults that this drops.
    containers = named(found, {**container, "resources": {"requests": requests}}, "name")
    return put(review.object, containers, "spec", "template", "spec", "containers")


def _remove_driver(review: Review) -> Json | None:
    """The Deployment without a driver, if it has one: windowbox itself creates and deletes machines."""
    found = objects(part(review.object, "spec", "template", "spec"), "containers")
    kept = [one for one in found if one.get("name") != _DRIVER]
    if kept == found:
        return None
    return put(review.object, kept, "spec", "template", "spec", "containers")


def _driver(image: str, namespace: str, hosted: bool) -> dict[str, Any]:
    """The driver's container; `hosted` control planes run outside of the cluster with the nodes."""
    # An empty value stands for the cluster in which the Pod runs, `none` for no cluster.
    own = "" if namespace == "kube-system" else "none"
    target = f"{_KUBECONFIG}/kubeconfig" if hosted else own
    container: dict[str, Any] = {
        "name": _DRIVER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": [
            "--control-kubeconfig=inClusterConfig",
            "--kube-api-qps=100",
            "--kube-api-burst=200",
            "--machine-creation-timeout=20m",
            "--machine-drain-timeout=2h",
            "--machine-health-timeout=10m",
            "--machine-safety-apiserver-statuscheck-timeout=30s",
            "--machine-safety-apiserver-statuscheck-period=1m",
            "--machine-safety-orphan-vms-period=30m",
            f"--namespace={namespace}",
            f"--port={_PORT}",
            f"--target-kubeconfig={target}",
            "--v=3",
        ],
        "ports": [{"name": "providermetrics", "containerPort": _PORT, "protocol": "TCP"}],
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": _PORT, "scheme": "HTTP"},
            "initialDelaySeconds": 30,
            "timeoutSeconds": 5,
            "periodSeconds": 10,
            "successThreshold": 1,
            "failureThreshold": 3,
        },
        "securityContext": {"allowPrivilegeEscalation": False},
    }
    if hosted:
        # gardenlet has added the volume of this name to the Pod.
        mount = {"name": "kubeconfig", "mountPath": _KUBECONFIG, "readOnly": True}
        container["volumeMounts"] = [mount]
    return container


CONTROL_PLANE = Webhook(registrations.CONTROL_PLANE, change_control_plane, big=WITH_YAML)
