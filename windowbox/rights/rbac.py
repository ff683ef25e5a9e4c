"""RBAC: the least rights of each role in the cluster, derived from the table of kinds."""

from __future__ import annotations

from typing import Any

import yaml

from windowbox.kinds import APPLY, KINDS, MAKE, PROVIDER_KINDS, READ, RESOURCES, WATCH, WATCHED
from windowbox.models.refs import (
    CLOUD_PROFILES,
    CLUSTERS,
    CONTROL_PLANES,
    LEASES,
    NAMESPACES,
    SECRETS,
    SERVICES,
    Resource,
)
from windowbox.rights import webhookconfigurations as configurations
from windowbox.rights.rights import EVENTS, Rights, listed, rules
from windowbox.settings.clustersettings import GrantSettings
from windowbox.settings.webhooksettings import WebhookSettings


def admit() -> Rights:
    """Write the configurations, and read what webhooks need."""
    names = [configurations.names(WebhookSettings(runtime=runtime)) for runtime in (False, True)]
    yield from _configurations(*names)
    yield CLUSTERS, "", READ
    yield CONTROL_PLANES, "", ("list",)  # they hand configurations over to Shoots
    yield SERVICES, "", READ  # that of the name server, for `dnsconfig`


def admission() -> Rights:
    """The same in a garden."""
    yield from _configurations(configurations.names(WebhookSettings(), garden=True))
    yield CLOUD_PROFILES, "", READ


def secrets() -> Rights:
    """Keep certificates, in the namespace of the webhooks."""
    yield SECRETS, "", (*READ, *WATCH, "create", "patch", "delete")


def leases() -> Rights:
    """Elect who writes the configurations, where there is no bus. RBAC cannot limit `create` to names."""
    yield LEASES._replace(named=configurations.GARDEN.prefixed), "", ("get", "create", "patch")


def _configurations(*names: configurations.Names) -> Rights:
    """The configurations of these names alone. RBAC cannot limit `create` to names."""
    for resource in configurations.RESOURCES.values():
        yield resource, "", ("create",)
        for name in names:
            yield resource._replace(named=name.prefixed), "", (*READ, *WATCH, "patch")
    yield NAMESPACES, "", READ


_GROUP = "rbac.authorization.k8s.io"
_RBAC = f"{_GROUP}/v1"
_CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition")

_OF_EVERY_CLUSTER = NAMESPACES._replace(named="kube-system")
"""The namespace by whose uid a client knows its cluster again when the API server's address changes."""


def _watcher() -> Rights:
    for id_ in WATCHED:
        yield RESOURCES[id_], "", WATCH
    yield _CRDS, "", WATCH
    yield _OF_EVERY_CLUSTER, "", READ
    yield SECRETS, "", READ  # kubeconfigs of clusters that join: which ones is known only then


def _worker() -> Rights:
    for row in KINDS:
        if row.type:
            yield row.resource, "", (*READ, "patch")
        if not row.credentials:
            yield from ((owned, "", MAKE) for owned in row.owns)
    yield CLUSTERS, "", READ
    yield NAMESPACES, "", READ
    yield from listed("worker")


def _patcher() -> Rights:
    for row in KINDS:
        if row.type:
            yield row.resource, "", READ
            yield row.resource, "status", ("patch",)
    yield EVENTS, "", ("create", *READ, "patch")
    yield _OF_EVERY_CLUSTER, "", READ
    yield SECRETS, "", READ  # see _watcher
    yield from listed("patcher")


def _provider() -> Rights:
    for resource in PROVIDER_KINDS:
        yield resource, "", WATCH
    for row in KINDS:
        if row.credentials:
            yield from ((owned, "", APPLY) for owned in row.owns)
    yield from listed("provider")


def _secrets(rights: Rights, *, are: bool) -> Rights:
    """The rights that are on Secrets, or those that are not."""
    return (right for right in rights if (right[0] == SECRETS) is are)


RULES: dict[str, list[dict[str, Any]]] = {
    "watcher": rules(_secrets(_watcher(), are=False)),
    "worker": rules(_secrets(_worker(), are=False)),
    "patcher": rules(_secrets(_patcher(), are=False)),
    "provider": rules(_provider()),
    "target": rules(_secrets(listed("target"), are=False)),
    "admit": rules(admit()),
    "admission": rules(admission()),
}
"""The least rights of each role in the whole cluster; `provider` is the user of a Shoot's kubeconfig for the
cluster that its machines run in, `target` the user in the Shoot itself, where machines become nodes."""

RUNNER = ("watcher", "worker", "patcher")
"""What `windowbox run` is all at once: a user `runner` has these roles, and none of its own."""

SECRET_RULES: dict[str, list[dict[str, Any]]] = {
    "watcher": rules(_secrets(_watcher(), are=True)),
    "worker": rules(_secrets(_worker(), are=True)),
    "patcher": rules(_secrets(_patcher(), are=True)),
}
"""Rights in granted namespaces alone."""

TARGET_SECRET_RULES = rules(_secrets(listed("target"), are=True))
"""Rights of `target` in kube-system alone, where bootstrap tokens are."""

OWN_SECRET_RULES = {
    "admit": rules(secrets()),
    "admission": rules([*secrets(), *leases()]),
}
"""Rights in the namespace of the webhooks."""

BY_DEFAULT = GrantSettings()


def granted(granting: GrantSettings) -> dict[str, str]:
    """The labels of RoleBindings made by `windowbox grant`."""
    return {"app.kubernetes.io/managed-by": f"{granting.name}-grant"}


def user(role: str) -> str:
    """The name by which the cluster knows a role."""
    return f"system:windowbox:{role}"


def is_role(name: str | None) -> bool:
    """Whether this is the user of a process, which may do no more than its part."""
    return name == "runner" or name in RULES


def rules_of(role: str) -> list[dict[str, Any]]:
    """The rights of a role, or of `runner`, in the whole cluster."""
    return [rule for each in (RUNNER if role == "runner" else (role,)) for rule in RULES[each]]


def manifests(*, everywhere: bool = False) -> list[dict[str, Any]]:
    """The roles and their bindings; with `everywhere`, all Secrets of the cluster may be read."""
    made: list[dict[str, Any]] = []
    for role, granted in {**RULES, "granter": granter()}.items():
        made += [_role(user(role), granted), _binding(user(role), role)]
    for role, granted in OWN_SECRET_RULES.items():
        made.append(_role(_secrets_role(role), granted))
    for role, granted in SECRET_RULES.items():
        made.append(_role(_secrets_role(role), granted))
        if everywhere:
            made.append(_binding(_secrets_role(role), role))
    return [*made, *_bootstrap_tokens()]


def for_runner() -> list[dict[str, Any]]:
    """What makes the user `runner` all three roles, with the Secrets of the whole cluster."""
    made = []
    for granted in (name for role in RUNNER for name in (user(role), _secrets_role(role))):
        binding = _binding(granted, "runner")
        made.append({**binding, "metadata": {"name": f"{user('runner')}:{granted.removeprefix(user(''))}"}})
    return made


def _bootstrap_tokens() -> list[dict[str, Any]]:
    """What `target` may do with Secrets. RBAC cannot limit `create` to types, but to a namespace."""
    name = f"{user('target')}:bootstrap-tokens"
    metadata = {"name": name, "namespace": "kube-system"}
    role = {**_role(name, TARGET_SECRET_RULES), "kind": "Role", "metadata": metadata}
    binding = {**_binding(name, "target"), "kind": "RoleBinding", "metadata": metadata}
    return [role, {**binding, "roleRef": {**binding["roleRef"], "kind": "Role"}}]


def namespaced(namespace: str, granting: GrantSettings = BY_DEFAULT) -> list[dict[str, Any]]:
    """What lets each role work with the Secrets of a namespace."""
    return [_secrets_binding(namespace, role, granted(granting), granting) for role in SECRET_RULES]


def for_webhooks(namespace: str) -> list[dict[str, Any]]:
    """What lets `windowbox admit` keep its certificates in this namespace."""
    return [_secrets_binding(namespace, role, {}, BY_DEFAULT) for role in OWN_SECRET_RULES]


def _secrets_binding(
    namespace: str, role: str, labels: dict[str, str], granting: GrantSettings
) -> dict[str, Any]:
    metadata = {"name": f"{granting.name}-{role}-secrets", "namespace": namespace, "labels": labels}
    binding = _binding(f"system:{granting.name}:{role}:secrets", role)
    if account := granting.service_accounts.get(role):
        place, _, name = account.partition("/")
        binding["subjects"] = [{"kind": "ServiceAccount", "namespace": place, "name": name}]
    return {**binding, "kind": "RoleBinding", "metadata": metadata}


def granter() -> list[dict[str, Any]]:
    """The rules of who makes those bindings. Whoever may bind roles may bind them to itself."""

    def rule(group: str, plural: str, verbs: list[str], *names: str) -> dict[str, Any]:
        made = {"apiGroups": [group], "resources": [plural], "verbs": verbs}
        return made | ({"resourceNames": list(names)} if names else {})

    return [
        rule("", NAMESPACES.plural, ["list", "watch"]),
        rule(_GROUP, "rolebindings", ["list", "create"]),
        rule(_GROUP, "rolebindings", ["patch", "delete"], *map(_binding_name, SECRET_RULES)),
        rule(_GROUP, "clusterroles", ["bind"], *map(_secrets_role, SECRET_RULES)),
    ]


def _secrets_role(role: str) -> str:
    return f"{user(role)}:secrets"


def _binding_name(role: str) -> str:
    return f"windowbox-{role}-secrets"


def text() -> str:
    """The file `deploy/rbac.yaml`, for clusters of one's own."""
    return f"# Made by `make generate` from windowbox/kinds.py.\n{yaml.safe_dump_all(manifests())}"


def _role(name: str, rules: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "apiVersion": _RBAC,
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": rules,
    }


def _binding(name: str, role: str) -> dict[str, Any]:
    """The ClusterRole `name` for the user of a role, in the whole cluster."""
    return {
        "apiVersion": _RBAC,
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": _GROUP, "kind": "User", "name": user(role)}],
    }


if __name__ == "__main__":
    print(text(), end="")
