"""Kinds of others that webhooks are asked about, as definitions that take any fields."""

from __future__ import annotations

from typing import Any

from sandbox.servers.apiserver import ApiServer

_GARDEN = "core.gardener.cloud"
KINDS = (
    # group, version, plural, kind, whether it is in namespaces, whether its status is a subresource
    ("autoscaling.k8s.io", "v1", "verticalpodautoscalers", "VerticalPodAutoscaler", True, True),
    ("monitoring.coreos.com", "v1", "prometheuses", "Prometheus", True, True),
    (_GARDEN, "v1beta1", "cloudprofiles", "CloudProfile", False, False),
    (_GARDEN, "v1beta1", "namespacedcloudprofiles", "NamespacedCloudProfile", True, True),
    (_GARDEN, "v1beta1", "shoots", "Shoot", True, True),
    ("security.gardener.cloud", "v1alpha1", "workloadidentities", "WorkloadIdentity", True, True),
)
Kinds = tuple[tuple[str, str, str, str, bool, bool], ...]
_ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def define(api: ApiServer, kinds: Kinds = KINDS) -> None:
    """Have the API server serve them."""
    for group, version, plural, kind, namespaced, with_status in kinds:
        served: dict[str, Any] = {"name": version, "served": True, "storage": True}
        served["schema"] = {"openAPIV3Schema": _ANY}
        if with_status:
            served["subresources"] = {"status": {}}
        names = {"plural": plural, "kind": kind, "singular": kind.lower(), "listKind": f"{kind}List"}
        scope, name = "Namespaced" if namespaced else "Cluster", f"{plural}.{group}"
        # Groups below k8s.io need somebody's approval.
        approved = {"api-approved.kubernetes.io": "unapproved, for tests"}
        manifest = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": name, "annotations": approved},
            "spec": {"group": group, "scope": scope, "names": names, "versions": [served]},
        }
        api.apply(f"{_DEFINITIONS}/{name}", manifest)
    for group, _, plural, *_ in kinds:
        _wait(api, f"{plural}.{group}")


def remove(api: ApiServer, kinds: Kinds = KINDS) -> None:
    for group, _, plural, *_ in kinds:
        api.request("DELETE", f"{_DEFINITIONS}/{plural}.{group}").close()


def _wait(api: ApiServer, name: str) -> None:
    for event in api.events(f"{_DEFINITIONS}?fieldSelector=metadata.name={name}", seconds=60):
        conditions = (event["object"].get("status") or {}).get("conditions") or []
        if any(one["type"] == "Established" and one["status"] == "True" for one in conditions):
            return
    raise AssertionError(f"{name} is not served after a minute")
