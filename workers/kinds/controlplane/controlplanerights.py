"""Rights in a Shoot, and in the namespace of its control plane. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from windowbox.models.refs import Resource
from windowbox.rights import rights
from workers.core.owned.manifests import Manifest, manifest

SYSTEM = "kube-system"
CCM = "cloud-controller-manager"
WINDOWBOX = "windowbox"
"""The ServiceAccount of windowbox in a Shoot."""

_GROUP = "rbac.authorization.k8s.io"
_CCM = f"system:{CCM}"
_ROLES = Resource(_GROUP, "v1", "roles", "Role")
_ROLE_BINDINGS = Resource(_GROUP, "v1", "rolebindings", "RoleBinding")
_CLUSTER_ROLES = Resource(_GROUP, "v1", "clusterroles", "ClusterRole", namespaced=False)
_CLUSTER_BINDINGS = Resource(_GROUP, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
_KEPT = {"resources.gardener.cloud/keep-object": "true"}
"""Annotation: the resource manager keeps these objects, for the clean-up in the Shoot."""

Rule = dict[str, Any]


def rule(group: str, resources: Sequence[str], verbs: Iterable[str], *names: str) -> Rule:
    made = {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
    return made | ({"resourceNames": list(names)} if names else {})


def windowbox() -> list[Manifest]:
    """The rights of windowbox on the Services and machines of the Shoot."""
    name = "system:windowbox"
    return _kept(
        cluster_role(name, rights.rules(rights.member())),
        cluster_role_binding(name, name, [subject(WINDOWBOX)]),
    )


def cloud_controller_manager() -> list[Manifest]:
    """The rights of Gardener's cloud-controller-manager."""
    rules = (
        rule("coordination.k8s.io", ["leases"], ("create", "list", "watch")),
        rule("coordination.k8s.io", ["leases"], ("get", "update"), CCM),
        rule("", ["events"], ("create", "patch", "update")),
        rule("", ["serviceaccounts"], ("get", "list", "watch", "create")),
        rule("", ["serviceaccounts/token"], ("create",), "service-controller"),
    )
    reader, controller = "extension-apiserver-authentication-reader", "system:controller:service-controller"
    services = f"{_CCM}:service-controller"
    return _kept(
        role(_CCM, SYSTEM, rules),
        role_binding(_CCM, SYSTEM, _CCM, [subject(CCM)]),
        role_binding(f"{_CCM}:auth-reader", SYSTEM, reader, [subject(CCM)]),
        cluster_role_binding(services, controller, [subject(CCM), subject("service-controller")]),
    )


def service_account(name: str, namespace: str, labels: dict[str, str] | None = None) -> Manifest:
    return manifest(_ACCOUNTS, name, namespace, labels=labels, automountServiceAccountToken=False)


def role(name: str, namespace: str, rules: Iterable[Rule]) -> Manifest:
    return manifest(_ROLES, name, namespace, rules=list(rules))


def role_binding(name: str, namespace: str, role: str, subjects: list[dict[str, str]]) -> Manifest:
    return manifest(_ROLE_BINDINGS, name, namespace, roleRef=_ref("Role", role), subjects=subjects)


def cluster_role(name: str, rules: Iterable[Rule]) -> Manifest:
    return manifest(_CLUSTER_ROLES, name, rules=list(rules))


def cluster_role_binding(name: str, role: str, subjects: list[dict[str, str]]) -> Manifest:
    return manifest(_CLUSTER_BINDINGS, name, roleRef=_ref("ClusterRole", role), subjects=subjects)


def subject(account: str, namespace: str = SYSTEM) -> dict[str, str]:
    return {"kind": "ServiceAccount", "name": account, "namespace": namespace}


def _ref(kind: str, name: str) -> dict[str, str]:
    return {"apiGroup": _GROUP, "kind": kind, "name": name}


def _kept(*made: Manifest) -> list[Manifest]:
    for one in made:
        one["metadata"]["annotations"] = _KEPT
    return list(made)
