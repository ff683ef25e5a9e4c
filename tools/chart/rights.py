"""The rights of the roles, as the chart's templates take them."""

from __future__ import annotations

from typing import Any

import yaml

from windowbox.rights import rbac

ROLES = {"watch": "watcher", "work": "worker", "patch": "patcher", "admit": "admit", "grant": "granter"}
"""The roles that reach the API, by their commands."""


def rights() -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Of each role: rules in the cluster, in granted namespaces (`secrets`), and in its own (`own`)."""
    cluster = {**rbac.RULES, "granter": rbac.granter()}
    return {
        role: {
            "cluster": cluster[role],
            "secrets": rbac.SECRET_RULES.get(role, []),
            "own": rbac.OWN_SECRET_RULES.get(role, []),
        }
        for role in (*ROLES.values(), "provider")
    }


def text() -> str:
    return f"# Written by `make generate` from windowbox/rights/rbac.py.\n{yaml.safe_dump(rights())}"
