"""Kubeconfigs as tenants write them into Secrets."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.support.kindworld import inline
from tests.support.servers import ControlPlane


def naming(
    server: object, cluster: Mapping[str, Any] | None = None, user: Mapping[str, Any] | None = None
) -> bytes:
    """A kubeconfig that names this server, with further fields of the cluster; by default with a token."""
    content = {
        "clusters": [{"name": "a", "cluster": {"server": server, **(cluster or {})}}],
        "users": [{"name": "a", "user": dict(user or {"token": "t"})}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "current-context": "a",
    }
    return yaml.safe_dump(content).encode()


def of(plane: ControlPlane, role: str = "provider") -> bytes:
    """The kubeconfig with which a role reaches a cluster."""
    return inline(plane.kubeconfigs[role].read_bytes())


def program(trace: Path) -> dict[str, Any]:
    """The `exec` of a user: a program that leaves a trace and gives no credentials."""
    return {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "sh",
        "args": ["-c", f"touch {shlex.quote(str(trace))}"],
        "interactiveMode": "Never",
    }


def with_user(kubeconfig: bytes, **credentials: Any) -> bytes:
    """The kubeconfig with other credentials."""
    content = yaml.safe_load(kubeconfig)
    content["users"][0]["user"] = credentials
    return yaml.safe_dump(content).encode()
