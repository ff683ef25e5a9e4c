"""What Extensions of each type consist of."""

from __future__ import annotations

from windowbox.models.refs import NETWORK_POLICIES
from workers.core.owned import managedresources
from workers.core.owned.managedresources import Bundle
from workers.core.owned.manifests import Manifest

SEED, SHOOT, AFTER_WORKER = "local-ext-seed", "local-ext-shoot", "local-ext-shoot-after-worker"

_SYSTEM = "kube-system"
_IMAGE = "europe-docker.pkg.dev/gardener-project/releases/3rd/alpine:3.19.1"


def bundle(type_: str, namespace: str) -> Bundle:
    """What an Extension in `namespace` hands over."""
    match type_:
        case "local-ext-seed":
            return managedresources.for_seed(type_, namespace, [_service_account(type_, namespace)])
        case "local-ext-shoot":
            return managedresources.for_shoot(type_, namespace, [_service_account(type_, _SYSTEM)])
        case _:
            return managedresources.for_shoot(type_, namespace, [_deployment(type_)])


def labels(type_: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": type_}


def finalizer(type_: str) -> str:
    return f"extensions.gardener.cloud/{type_}"


def leftover(namespace: str) -> Manifest:
    """A NetworkPolicy that no Pod obeys, and that stays until somebody lets go of it."""
    return {
        "apiVersion": f"{NETWORK_POLICIES.group}/{NETWORK_POLICIES.version}",
        "kind": NETWORK_POLICIES.kind,
        "metadata": {
            "generateName": "test-netpol-",
            "namespace": namespace,
            "labels": labels(SHOOT),
            "finalizers": [finalizer(SHOOT)],
        },
        # An empty selector would cut off all Pods of the control plane.
        "spec": {"podSelector": {"matchLabels": labels(SHOOT)}},
    }


def _service_account(name: str, namespace: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": name, "namespace": namespace, "labels": labels(name)},
        "automountServiceAccountToken": False,
    }


def _deployment(name: str) -> Manifest:
    container = {"name": name, "image": _IMAGE, "command": ["/bin/sh", "-c", "sleep 3600"]}
    pod = {
        "metadata": {"labels": labels(name)},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": _SYSTEM, "labels": labels(name)},
        "spec": {
            "replicas": 1,
            "revisionHistoryLimit": 2,
            "selector": {"matchLabels": labels(name)},
            "template": pod,
        },
    }
