"""RBAC manifests with the least rights of each role, derived from the table of kinds."""

from __future__ import annotations

from typing import Any

import yaml

from windowbox.kinds import APPLY, KINDS, PROVIDER_KINDS, READ, RESOURCES, WATCH, WATCHED, Served
from windowbox.models.refs import (
    ACCESS_REVIEWS,
    CLOUD_PROFILES,
    CLUSTERS,
    CONTROL_PLANES,
    CREDENTIALS_BINDINGS,
    LEASES,
    MANAGED_RESOURCES,
    NAMESPACED_CLOUD_PROFILES,
    NAMESPACES,
    NETWORK_POLICIES,
    SECRET_BINDINGS,
    SECRETS,
    SERVICES,
    TOKEN_REVIEWS,
    Resource,
)
from windowbox.rights import admissionpolicies
from windowbox.rights import webhookconfigurations as configurations
from windowbox.rights.rights import EVENTS, Right, Rights, listed, rules
from windowbox.settings.clustersettings import GrantSettings
from windowbox.settings.webhooksettings import WebhookSettings

_GROUP = "rbac.authorization.k8s.io"
_RBAC = f"{_GROUP}/v1"
_CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition")

PAGE = Resource("ui.windowbox.dev", "v1", "pages", "Page", namespaced=False)
"""No kind that exists: who may `get` it may look at the page of `windowbox ui`."""

_IDENTITY = NAMESPACES._replace(named="kube-system")
"""The namespace whose uid identifies a cluster after the address of its API server has changed."""


def _watcher() -> Rights:
    for id_ in WATCHED:
        yield RESOURCES[id_], "", WATCH
    yield _CRDS, "", WATCH
    yield _IDENTITY, "", READ
    # Kubeconfigs of clusters that join: their names are only known then.
    yield SECRETS, "", READ


def _worker() -> Rights:
    for row in KINDS:
        if row.type:
            yield row.resource, "", (*READ, "patch")
        if not row.credentials:
            yield from _make(row)
    yield CLUSTERS, "", READ
    yield NAMESPACES, "", READ
    yield from listed("worker")


def _make(row: Served) -> Rights:
    """Create the objects that a kind owns; change and delete those of its names alone, if they are fixed."""
    for owned in row.owns:
        yield owned, "", (*READ, "create")
        for name in row.owned_names or ("",):
            yield owned._replace(named=name), "", ("patch", "delete")


def _patcher() -> Rights:
    for row in KINDS:
        if row.type:
            yield row.resource, "", READ
            yield row.resource, "status", ("patch",)
    yield EVENTS, "", ("create", *READ, "patch")
    yield _IDENTITY, "", READ
    yield SECRETS, "", READ  # as for watchers
    yield from listed("patcher")


def _provider() -> Rights:
    for resource in PROVIDER_KINDS:
        yield resource, "", WATCH
    for row in KINDS:
        if row.credentials:
            yield from ((owned, "", APPLY) for owned in row.owns)
    yield from listed("provider")


def _configurations(*names: configurations.Names) -> Rights:
    """Write the webhook configurations of these names alone."""
    for resource in configurations.RESOURCES.values():
        # RBAC cannot limit `create` to names.
        yield resource, "", ("create",)
        for name in names:
            yield resource._replace(named=name.prefixed), "", (*READ, *WATCH, "patch")
    yield NAMESPACES, "", READ


def _admit() -> Rights:
    yield from _configurations(
        *(configurations.names(WebhookSettings(runtime=runtime)) for runtime in (False, True))
    )
    yield CLUSTERS, "", READ
    # After a change of the configurations, all ControlPlanes are reconciled, which copies it to the Shoots.
    yield CONTROL_PLANES, "", ("list",)
    # The Service of the name server, for the webhook `dnsconfig`.
    yield SERVICES, "", READ


def _ui() -> Rights:
    """Ask the cluster who signs in, and whether they may."""
    yield TOKEN_REVIEWS, "", ("create",)
    yield ACCESS_REVIEWS, "", ("create",)


_GUARDED = {SECRETS.id, MANAGED_RESOURCES.id, NETWORK_POLICIES.id}
"""Kinds whose objects protect or control more than windowbox serves. What it serves has Secrets, so that its
namespaces are granted anyway: no role writes these kinds elsewhere."""


def _is_by_namespace(right: Right) -> bool:
    resource, _, verbs = right
    return resource == SECRETS or (resource.id in _GUARDED and not {*verbs} <= {*WATCH})


def _by_namespace(rights: Rights) -> list[dict[str, Any]]:
    return rules(right for right in rights if _is_by_namespace(right))


def _everywhere(rights: Rights) -> list[dict[str, Any]]:
    return rules(right for right in rights if not _is_by_namespace(right))


_OF_THE_BUS = {"watcher": _watcher, "worker": _worker, "patcher": _patcher}

RULES: dict[str, list[dict[str, Any]]] = {
    **{role: _everywhere(rights()) for role, rights in _OF_THE_BUS.items()},
    "provider": rules(_provider()),
    "target": _everywhere(listed("target")),
    "admit": rules(_admit()),
    "ui": rules(_ui()),
    "admission": rules([*_configurations(configurations.GARDEN), (CLOUD_PROFILES, "", READ)]),
}
"""The least rights of each role in the whole cluster. `provider` is the user of a Shoot's kubeconfig in the
cluster of its machines, `target` the user in the Shoot itself, where machines become nodes."""

CLOUD_RULES = rules(
    (one, "", READ) for one in (CREDENTIALS_BINDINGS, NAMESPACED_CLOUD_PROFILES, SECRET_BINDINGS, SECRETS)
)
"""What `admission` reads besides in a garden if the setting clouds.types is not empty."""

VIEWER_RULES = rules([(PAGE, "", READ)])

SECRET_RULES = {role: _by_namespace(rights()) for role, rights in _OF_THE_BUS.items()}
"""Rights in granted namespaces only."""

TARGET_SECRET_RULES = _by_namespace(listed("target"))
"""Rights of `target` in kube-system only, the namespace of bootstrap tokens."""

_CERTIFICATES = (SECRETS, "", (*READ, *WATCH, "create", "patch", "delete"))
_ELECTION = (LEASES._replace(named=configurations.GARDEN.prefixed), "", ("get", "create", "patch"))
"""A Lease elects the writer of the configurations where there is no bus."""

OWN_SECRET_RULES = {"admit": rules([_CERTIFICATES]), "admission": rules([_CERTIFICATES, _ELECTION])}
"""Rights in the namespace of the webhooks."""

RUNNER = ("watcher", "worker", "patcher")
"""The roles of the user `runner`, for `windowbox run`."""

BY_DEFAULT = GrantSettings()

_HEAD = """# Made by `make generate` from windowbox/kinds.py.
# If the setting grant.namespaces is not the default, change the variable `namespaces` of windowbox-granter.
# If clouds.types is not empty, bind system:windowbox:admission:clouds to the admission of a garden.
"""


def granted(granting: GrantSettings) -> dict[str, str]:
    """The labels of RoleBindings made by `windowbox grant`."""
    return {"app.kubernetes.io/managed-by": f"{granting.name}-grant"}


def user(role: str) -> str:
    """The name by which the cluster knows a role."""
    return f"system:windowbox:{role}"


def is_role(name: str | None) -> bool:
    """Whether this is the user of a process, with the rights of its role only."""
    return name == "runner" or name in RULES


def rules_of(role: str) -> list[dict[str, Any]]:
    """The rights of a role, or of `runner`, in the whole cluster."""
    return [rule for each in (RUNNER if role == "runner" else (role,)) for rule in RULES[each]]


def manifests(*, everywhere: bool = False) -> list[dict[str, Any]]:
    """The roles and their bindings; with `everywhere`, roles may use the Secrets of all namespaces."""
    made: list[dict[str, Any]] = []
    for role, granted in {**RULES, "granter": granter()}.items():
        made += [_role(user(role), granted), _binding(user(role), role)]
    for role, granted in OWN_SECRET_RULES.items():
        made.append(_role(_secrets_role(role), granted))
    for role, granted in SECRET_RULES.items():
        made.append(_role(_secrets_role(role), granted))
        if everywhere:
            made.append(_binding(_secrets_role(role), role))
    made.append(_role(_CLOUDS_ROLE, CLOUD_RULES))
    made.append(_role(_VIEWER_ROLE, VIEWER_RULES))
    if everywhere:
        made.append(_binding(_CLOUDS_ROLE, "admission"))
    # RBAC cannot limit `create` to types of Secrets, but to a namespace.
    name = f"{user('target')}:bootstrap-tokens"
    metadata = {"name": name, "namespace": "kube-system"}
    made.append({**_role(name, TARGET_SECRET_RULES), "kind": "Role", "metadata": metadata})
    binding = {**_binding(name, "target"), "kind": "RoleBinding", "metadata": metadata}
    made.append({**binding, "roleRef": {**binding["roleRef"], "kind": "Role"}})
    return [*made, *policies()]


def policies() -> list[dict[str, Any]]:
    """Policies of the API server, for what RBAC cannot limit."""
    holders = {_secrets_role(role): user(role) for role in SECRET_RULES}
    return admissionpolicies.manifests(user("granter"), user("worker"), holders, BY_DEFAULT)


def for_runner() -> list[dict[str, Any]]:
    """Bindings that give the user `runner` its three roles, with the Secrets of the whole cluster."""
    made = []
    for granted in (name for role in RUNNER for name in (user(role), _secrets_role(role))):
        binding = _binding(granted, "runner")
        made.append({**binding, "metadata": {"name": f"{user('runner')}:{granted.removeprefix(user(''))}"}})
    return made


def namespaced(namespace: str, granting: GrantSettings = BY_DEFAULT) -> list[dict[str, Any]]:
    """Bindings that let each role use the Secrets of a namespace."""
    return [_secrets_binding(namespace, role, granted(granting), granting) for role in SECRET_RULES]


def for_webhooks(namespace: str) -> list[dict[str, Any]]:
    """Bindings that let `windowbox admit` keep its certificates in this namespace."""
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
    """The rules of `windowbox grant`, which creates those bindings.

    By these alone it could bind them to anybody, and in any namespace: a policy forbids that.
    """

    def rule(group: str, plural: str, verbs: list[str], *names: str) -> dict[str, Any]:
        made = {"apiGroups": [group], "resources": [plural], "verbs": verbs}
        return made | ({"resourceNames": list(names)} if names else {})

    return [
        rule("", NAMESPACES.plural, ["list", "watch"]),
        rule(_GROUP, "rolebindings", ["list", "create"]),
        rule(
            _GROUP,
            "rolebindings",
            ["patch", "delete"],
            *(f"windowbox-{role}-secrets" for role in SECRET_RULES),
        ),
        rule(_GROUP, "clusterroles", ["bind"], *map(_secrets_role, SECRET_RULES)),
    ]


def _secrets_role(role: str) -> str:
    return f"{user(role)}:secrets"


_VIEWER_ROLE = f"{user('ui')}:viewer"
"""For people: bind it to those who may look at the page."""
_CLOUDS_ROLE = f"{user('admission')}:clouds"


def text() -> str:
    """The file `deploy/rbac.yaml`, for installations without the chart."""
    return f"{_HEAD}{yaml.safe_dump_all(manifests())}"


def _role(name: str, rules: list[dict[str, Any]]) -> dict[str, Any]:
    return {"apiVersion": _RBAC, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}


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
