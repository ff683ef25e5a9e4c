"""Who may do what in the cluster: the least rights of each role."""

from __future__ import annotations

from typing import Any

import yaml

from windowbox.models.refs import HEARTBEATS

_EXTENSIONS = "extensions.gardener.cloud"
_WATCH = ["list", "watch"]
_RBAC = "rbac.authorization.k8s.io/v1"


def _rule(group: str, resources: list[str], verbs: list[str], *names: str) -> dict[str, Any]:
    """A rule for all objects of these kinds, or for those of these names."""
    rule = {"apiGroups": [group], "resources": [*resources], "verbs": [*verbs]}
    return rule | ({"resourceNames": [*names]} if names else {})


_KUBECONFIGS = _rule("", ["secrets"], ["get"])
"""The credentials of clusters that join are in Secrets, and which ones is known only then."""

_KINDS = [
    "backupbuckets",
    "backupentries",
    "bastions",
    "dnsrecords",
    "extensions",
    "infrastructures",
    "operatingsystemconfigs",
    "selfhostedshootexposures",
]
_NETWORKING, _CALICO = "networking.k8s.io", "crd.projectcalico.org"
_RESOURCES, _LEASES = "resources.gardener.cloud", "coordination.k8s.io"
_APPLY = ["create", "patch", "delete"]
_MAKE = ["get", *_APPLY]

RULES: dict[str, list[dict[str, Any]]] = {
    "watcher": [
        _rule(_EXTENSIONS, [*_KINDS, "clusters"], _WATCH),
        _rule("", ["namespaces", "services", "nodes", "pods"], _WATCH),
        _rule("discovery.k8s.io", ["endpointslices"], _WATCH),
        _rule(_NETWORKING, ["networkpolicies", "ingresses"], _WATCH),
        _rule(_CALICO, ["ippools"], _WATCH),
        _rule(_RESOURCES, ["managedresources"], _WATCH),
        _rule(_LEASES, ["leases"], _WATCH, HEARTBEATS.named),
        _rule("apiextensions.k8s.io", ["customresourcedefinitions"], _WATCH),
        _KUBECONFIGS,
    ],
    "worker": [
        _rule(_EXTENSIONS, _KINDS, ["get", "patch"]),
        _rule(_EXTENSIONS, ["dnsrecords"], _MAKE),  # those of Ingresses
        _rule(_EXTENSIONS, ["clusters"], ["get"]),
        _rule("", ["namespaces"], ["get"]),
        _rule("", ["secrets"], _MAKE),
        _rule(_RESOURCES, ["managedresources"], _MAKE),
        _rule(
            _NETWORKING, ["networkpolicies"], [*_APPLY, "list"]
        ),  # left over where tests of Gardener ask so
        _rule(_NETWORKING, ["ingresses"], ["get"]),
        _rule(_LEASES, ["leases"], ["create"]),
        _rule(_LEASES, ["leases"], ["get", "patch"], HEARTBEATS.named),
        # As the service controller has them: Services themselves are nobody's to change but their owners'.
        _rule("", ["services"], ["get", "list"]),
        _rule("", ["services/status"], ["patch"]),
    ],
    "patcher": [
        _rule(_EXTENSIONS, _KINDS, ["get"]),
        _rule(_EXTENSIONS, [f"{kind}/status" for kind in _KINDS], ["patch"]),
        _rule("", ["services"], ["get"]),
        _rule("", ["services/status"], ["patch"]),
        _rule("", ["events"], ["create", "get", "patch"]),
        _KUBECONFIGS,
    ],
    "provider": [
        _rule("", ["namespaces"], [*_MAKE, *_WATCH]),
        _rule("", ["secrets"], _MAKE),
        _rule("", ["pods", "services"], [*_APPLY, *_WATCH]),
        _rule("discovery.k8s.io", ["endpointslices"], [*_APPLY, *_WATCH]),
        _rule(_NETWORKING, ["networkpolicies"], [*_APPLY, *_WATCH]),
        _rule(_CALICO, ["ippools"], [*_APPLY, *_WATCH]),
    ],
}
"""The least rights of each role; `provider` is whom a Shoot's kubeconfig speaks for."""


def user(role: str) -> str:
    """The name by which the cluster knows a role."""
    return f"system:windowbox:{role}"


def manifests() -> list[dict[str, Any]]:
    """A ClusterRole and a ClusterRoleBinding for each role."""
    return [made for role, rules in RULES.items() for made in (_role(role, rules), _binding(role))]


def text() -> str:
    """The file `deploy/rbac.yaml`, for clusters of one's own."""
    return f"# Made by `make generate` from windowbox/rbac.py.\n{yaml.safe_dump_all(manifests())}"


def _role(role: str, rules: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "apiVersion": _RBAC,
        "kind": "ClusterRole",
        "metadata": {"name": user(role)},
        "rules": rules,
    }


def _binding(role: str) -> dict[str, Any]:
    group = _RBAC.partition("/")[0]
    return {
        "apiVersion": _RBAC,
        "kind": "ClusterRoleBinding",
        "metadata": {"name": user(role)},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": user(role)},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user(role)}],
    }


if __name__ == "__main__":
    print(text(), end="")
