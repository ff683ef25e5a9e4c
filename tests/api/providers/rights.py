"""Rights that a role gets for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tests.support.servers import ControlPlane
from windowbox.rights import rbac

_GROUP = "rbac.authorization.k8s.io"
_RBAC = f"/apis/{_GROUP}/v1"


@contextlib.contextmanager
def bound(plane: ControlPlane, role: str, to: str) -> Iterator[None]:
    """A role with what another one may do, too."""
    path = f"{_RBAC}/clusterrolebindings/test:{role}-as-{to}"
    binding = {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"test:{role}-as-{to}"},
        "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": rbac.user(to)},
        "subjects": [{"apiGroup": _GROUP, "kind": "User", "name": rbac.user(role)}],
    }
    plane.api.apply(path, binding)
    try:
        yield
    finally:
        plane.api.request("DELETE", path).read()


@contextlib.contextmanager
def changed(plane: ControlPlane, role: str, rules: list[dict[str, Any]]) -> Iterator[None]:
    """A role with other rules than it has."""
    path = f"{_RBAC}/clusterroles/{rbac.user(role)}"
    head = {"apiVersion": f"{_GROUP}/v1", "kind": "ClusterRole", "metadata": {"name": rbac.user(role)}}
    plane.api.apply(path, {**head, "rules": rules})
    try:
        yield
    finally:
        plane.api.apply(path, {**head, "rules": rbac.RULES[role]})
