"""Kinds of others that webhooks are asked about, as definitions that take any fields."""

from __future__ import annotations

from typing import Any

from sandbox.servers import manifests
from sandbox.servers.apiserver import ApiServer
from sandbox.shoots import waiting

_GARDEN = "core.gardener.cloud"
KINDS = (
    # group, version, plural, kind, whether it is in namespaces, whether its status is a subresource
    ("autoscaling.k8s.io", "v1", "verticalpodautoscalers", "VerticalPodAutoscaler", True, True),
    ("monitoring.coreos.com", "v1", "prometheuses", "Prometheus", True, True),
    (_GARDEN, "v1beta1", "cloudprofiles", "CloudProfile", False, False),
    (_GARDEN, "v1beta1", "namespacedcloudprofiles", "NamespacedCloudProfile", True, True),
    (_GARDEN, "v1beta1", "shoots", "Shoot", True, True),
    (_GARDEN, "v1beta1", "secretbindings", "SecretBinding", True, False),
    ("security.gardener.cloud", "v1alpha1", "credentialsbindings", "CredentialsBinding", True, False),
    ("security.gardener.cloud", "v1alpha1", "workloadidentities", "WorkloadIdentity", True, True),
)
Kinds = tuple[tuple[str, str, str, str, bool, bool], ...]
_ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def define(api: ApiServer, kinds: Kinds = KINDS) -> None:
    """Have the API server serve them."""
    manifests.define(api, *(_definition(*kind) for kind in kinds))


def remove(api: ApiServer, kinds: Kinds = KINDS) -> None:
    """Have the API server serve them no more. Waits: what is still being deleted cannot be defined."""
    names = [f"{plural}.{group}" for group, _, plural, *_ in kinds]
    for name in names:
        api.request("DELETE", f"{_DEFINITIONS}/{name}").close()
    for name in names:
        waiting.until_gone(api, _DEFINITIONS, name, f"{name} is still defined", patience=30)


def _definition(
    group: str, version: str, plural: str, kind: str, namespaced: bool, with_status: bool
) -> dict[str, Any]:
    served: dict[str, Any] = {"name": version, "served": True, "storage": True}
    served["schema"] = {"openAPIV3Schema": _ANY}
    if with_status:
        served["subresources"] = {"status": {}}
    names = {"plural": plural, "kind": kind, "singular": kind.lower(), "listKind": f"{kind}List"}
    scope = "Namespaced" if namespaced else "Cluster"
    # Groups below k8s.io need somebody's approval.
    approved = {"api-approved.kubernetes.io": "unapproved, for tests"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "annotations": approved},
        "spec": {"group": group, "scope": scope, "names": names, "versions": [served]},
    }
