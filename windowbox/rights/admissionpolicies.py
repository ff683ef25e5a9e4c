"""Policies of the API server that narrow what RBAC cannot: contents, and namespaces by pattern.

A ValidatingAdmissionPolicy is evaluated by the API server itself, so no process of windowbox has to run.
"""

from __future__ import annotations

import json
from typing import Any

from windowbox.models.refs import NETWORK_POLICIES, Resource
from windowbox.settings.clustersettings import GrantSettings

_GROUP = "admissionregistration.k8s.io"
_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")

_IN_PATTERNS = "variables.namespaces.exists(one, request.namespace.matches(one))"
_TO_HOLDERS = (
    "!has(object.subjects) || object.subjects.all(one, variables.holders[object.roleRef.name] == "
    "(one.kind == 'User' ? one.name : one.kind == 'ServiceAccount' ? "
    "'system:serviceaccount:' + one.namespace + ':' + one.name : ''))"
)
_LABEL, _TYPE = "app.kubernetes.io/name", "local-ext-shoot"
_OF_TESTS = (
    f"has(variables.found.metadata.labels) && '{_LABEL}' in variables.found.metadata.labels && "
    f"variables.found.metadata.labels['{_LABEL}'] == '{_TYPE}'"
)
_OF_MACHINES = "request.namespace.startsWith('infra-')"


def manifests(
    granter: str, worker: str, holders: dict[str, str], granting: GrantSettings
) -> list[dict[str, Any]]:
    """The policies and their bindings.

    `granter` and `worker` are the names of users. `holders` has the user of each ClusterRole that the granter
    may bind.
    """
    variables = {"namespaces": json.dumps(patterns(granting)), "holders": json.dumps(holders)}
    return [
        *_policy(
            f"{granting.name}-granter",
            granter,
            _rule(_BINDINGS, "CREATE", "UPDATE"),
            variables,
            {
                _IN_PATTERNS: "the granter grants in the namespaces of grant.namespaces only",
                _TO_HOLDERS: "the granter binds each role to its own process only",
            },
        ),
        *_policy(
            f"{granting.name}-worker",
            worker,
            _rule(NETWORK_POLICIES, "CREATE", "UPDATE", "DELETE"),
            # What is changed or deleted has to be ours before.
            {"found": "oldObject == null ? object : oldObject"},
            {f"{_OF_MACHINES} || ({_OF_TESTS})": "workers write their own NetworkPolicies only"},
        ),
    ]


def patterns(granting: GrantSettings) -> list[str]:
    """The namespaces as regular expressions. Names of namespaces have letters, digits and hyphens only."""
    return [f"^{one.replace('?', '.').replace('*', '.*')}$" for one in granting.namespaces]


def _rule(resource: Resource, *operations: str) -> dict[str, Any]:
    return {
        "apiGroups": [resource.group],
        "apiVersions": ["*"],
        "resources": [resource.plural],
        "operations": list(operations),
    }


def _policy(
    name: str, user: str, rule: dict[str, Any], variables: dict[str, str], validations: dict[str, str]
) -> list[dict[str, Any]]:
    head = {"apiVersion": f"{_GROUP}/v1", "metadata": {"name": name}}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [{"name": "user", "expression": f'request.userInfo.username == "{user}"'}],
        "variables": [{"name": name, "expression": expression} for name, expression in variables.items()],
        "validations": [
            {"expression": expression, "message": message, "reason": "Forbidden"}
            for expression, message in validations.items()
        ],
    }
    return [
        {**head, "kind": "ValidatingAdmissionPolicy", "spec": spec},
        {
            **head,
            "kind": "ValidatingAdmissionPolicyBinding",
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        },
    ]
