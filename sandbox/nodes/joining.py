"""TLS bootstrap of kubelets: a bootstrap token lets them request a certificate, as with kubeadm."""

from __future__ import annotations

import datetime
import secrets
import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sandbox.servers import manifests
from sandbox.servers.apiserver import ApiServer

RBAC = "rbac.authorization.k8s.io"
_NEWCOMERS = "system:bootstrappers:windowbox"
_RIGHTS = {
    "windowbox:join": ("system:node-bootstrapper", None),
    "windowbox:approve-joining": ("system:certificates.k8s.io:certificatesigningrequests:nodeclient", None),
    "windowbox:approve-renewing": (
        "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", "system:nodes"
    ),
}  # fmt: skip
"""ClusterRoles to request certificates and to have requests approved, and their group. None: newcomers."""
_LETTERS = string.ascii_lowercase + string.digits
_VALID = datetime.timedelta(hours=1)
"""Longer than a kubelet needs on any machine; the cluster's token cleaner removes it then."""


@dataclass(frozen=True)
class Token:
    """A bootstrap token: it permits certificate requests and nothing else."""

    id: str
    secret: str = field(repr=False)

    def text(self) -> str:
        return f"{self.id}.{self.secret}"


def token() -> Token:
    """A random token in the form of bootstrap tokens."""
    return Token(_random(6), _random(16))


def bind(api: ApiServer, newcomers: str = _NEWCOMERS) -> None:
    """Permit certificate requests of a group (by default: our tokens), and renewals by nodes. Idempotent."""
    for name, (role, group) in _RIGHTS.items():
        api.apply_object(binding({"name": name}, "ClusterRole", role, group or newcomers))


def binding(metadata: Mapping[str, str], kind: str, role: str, *groups: str) -> dict[str, Any]:
    """The binding of a Role or ClusterRole to groups."""
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": f"{kind}Binding",
        "metadata": metadata,
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": role},
        "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": group} for group in groups],
    }


def admit(api: ApiServer, token: Token) -> None:
    """Create the Secret of the token, with an expiry. Idempotent."""
    # https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/#bootstrap-token-secret-format
    end = datetime.datetime.now(datetime.UTC) + _VALID
    data = {
        "token-id": token.id,
        "token-secret": token.secret,
        "expiration": end.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "usage-bootstrap-authentication": "true",
        "auth-extra-groups": _NEWCOMERS,
        "description": "Lets the nodes of this sandbox join.",
    }
    name = f"bootstrap-token-{token.id}"
    api.apply_object(manifests.secret("kube-system", name, data, "bootstrap.kubernetes.io/token"))


def _random(length: int) -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(length))
