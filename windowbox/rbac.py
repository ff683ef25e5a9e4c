"""Who may do what in the cluster: the least rights of each role, derived from the table of kinds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Any

import yaml

from windowbox.kinds import APPLY, KINDS, MAKE, PROVIDER_KINDS, READ, RESOURCES, WATCH, WATCHED
from windowbox.models.refs import CLUSTERS, NAMESPACES, SECRETS, Resource

_RBAC = "rbac.authorization.k8s.io/v1"
_VERBS = ("get", "list", "watch", "create", "patch", "delete")

_CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition")
_EVENTS = Resource("", "v1", "events", "Event")

Rights = Iterator[tuple[Resource, str, Collection[str]]]
"""A kind, a subresource or nothing, and verbs."""


def _watcher() -> Rights:
    for id_ in WATCHED:
        yield RESOURCES[id_], "", WATCH
    yield _CRDS, "", WATCH
    yield SECRETS, "", READ  # kubeconfigs of clusters that join: which ones is known only then


def _worker() -> Rights:
    for row in KINDS:
        if row.type:
            yield row.resource, "", (*READ, "patch")
        if not row.credentials:
            yield from ((owned, "", MAKE) for owned in row.owns)
    yield CLUSTERS, "", READ
    yield NAMESPACES, "", READ
    yield from _listed("worker")


def _patcher() -> Rights:
    for row in KINDS:
        if row.type:
            yield row.resource, "", READ
            yield row.resource, "status", ("patch",)
    yield _EVENTS, "", ("create", *READ, "patch")
    yield SECRETS, "", READ  # see _watcher
    yield from _listed("patcher")


def _provider() -> Rights:
    for resource in PROVIDER_KINDS:
        yield resource, "", WATCH
    for row in KINDS:
        if row.credentials:
            yield from ((owned, "", APPLY) for owned in row.owns)
    yield from _listed("provider")


def _listed(role: str) -> Rights:
    """The rights in the rows of the table."""
    for row in KINDS:
        yield from ((right.resource, right.part, right.verbs) for right in row.rights if right.role == role)


def _rules(rights: Rights) -> list[dict[str, Any]]:
    """Rights as rules of a ClusterRole: one rule for all kinds of a group with the same verbs."""
    verbs: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for resource, part, allowed in rights:
        plural = f"{resource.plural}/{part}" if part else resource.plural
        for verb in allowed:
            # RBAC cannot limit `create` to names.
            verbs[resource.group, plural, "" if verb == "create" else resource.named].add(verb)
    rules: dict[tuple[str, str, tuple[str, ...]], list[str]] = defaultdict(list)
    for group, plural, name in sorted(verbs):
        sorted_verbs = tuple(verb for verb in _VERBS if verb in verbs[group, plural, name])
        rules[group, name, sorted_verbs].append(plural)
    return [
        {"apiGroups": [group], "resources": plurals, "verbs": list(allowed)}
        | ({"resourceNames": [name]} if name else {})
        for (group, name, allowed), plurals in rules.items()
    ]


RULES: dict[str, list[dict[str, Any]]] = {
    "watcher": _rules(_watcher()),
    "worker": _rules(_worker()),
    "patcher": _rules(_patcher()),
    "provider": _rules(_provider()),
}
"""The least rights of each role; `provider` is the user of a Shoot's kubeconfig."""


def user(role: str) -> str:
    """The name by which the cluster knows a role."""
    return f"system:windowbox:{role}"


def manifests() -> list[dict[str, Any]]:
    """A ClusterRole and a ClusterRoleBinding for each role."""
    return [made for role, rules in RULES.items() for made in (_role(role, rules), _binding(role))]


def text() -> str:
    """The file `deploy/rbac.yaml`, for clusters of one's own."""
    return f"# Made by `make generate` from windowbox/kinds.py.\n{yaml.safe_dump_all(manifests())}"


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
