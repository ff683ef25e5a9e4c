"""The driver for local machines, beside machine-controller-manager."""

from __future__ import annotations

from typing import Any

from webhooks import clusters, quantities
from webhooks.review import Context, Review, about
from webhooks.shapes import named, namespace, objects, part, put
from windowbox.models.objects import Json

NAME = "machine-controller-manager-provider-local"
_KUBECONFIG = "/var/run/secrets/gardener.cloud/shoot/generic-kubeconfig"
_PORT = 10259
_REQUESTS = {"cpu": "10m", "memory": "20Mi"}


def added(review: Review, context: Context) -> Json:
    """The Deployment with the driver as one of its containers."""
    cluster = context.looked_up("failed reading Cluster: ")
    shoot = clusters.shoot(cluster, namespace(review))
    with about(clusters.shoot_in(namespace(review))):
        hosted = not clusters.self_hosted(shoot)
    container = _container(context.image(NAME), namespace(review), hosted)
    former = objects(part(review.object, "spec", "template", "spec"), "containers")
    requests = quantities.spelled(_requests(former), _REQUESTS)
    containers = named(former, {**container, "resources": {"requests": requests}}, "name")
    return put(review.object, containers, "spec", "template", "spec", "containers")


def scaled(autoscaler: Json) -> Json:
    """The VerticalPodAutoscaler with a policy for the driver's container, last."""
    policy = {"containerName": NAME, "controlledValues": "RequestsOnly"}
    found = objects(part(autoscaler, "spec", "resourcePolicy"), "containerPolicies")
    policies = named(found, policy, "containerName")
    return put(autoscaler, policies, "spec", "resourcePolicy", "containerPolicies")


def _requests(containers: list[Json]) -> Json:
    """What the driver's container has requested so far."""
    former = next((one for one in containers if one.get("name") == NAME), {})
    return part(former, "resources", "requests")


def _container(image: str, namespace: str, hosted: bool) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": NAME,
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
            f"--target-kubeconfig={_target(namespace, hosted)}",
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
        # gardenlet has written the volume of this name.
        mount = {"name": "kubeconfig", "mountPath": _KUBECONFIG, "readOnly": True}
        container["volumeMounts"] = [mount]
    return container


def _target(namespace: str, hosted: bool) -> str:
    """Where the kubeconfig of the cluster with the nodes is; empty for the cluster in which the Pod runs."""
    if hosted:
        return f"{_KUBECONFIG}/kubeconfig"
    return "" if namespace == "kube-system" else "none"
