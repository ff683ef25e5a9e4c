"""Namespaces in which windowbox has rights on Secrets."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, field_validator


class GrantSettings(BaseModel):
    """What `windowbox grant` grants."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    namespaces: tuple[str, ...] = Field(
        ("garden", "shoot--*"),
        description="Namespaces (names or patterns) in which `windowbox grant` gives the roles rights on "
        "Secrets.",
    )
    name: str = Field(
        "windowbox",
        pattern=r"^[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?$",
        description="NAME in this installation's ClusterRoles `system:NAME:ROLE:secrets` and RoleBindings "
        "`NAME-ROLE-secrets`.",
    )
    service_accounts: dict[str, str] = Field(
        {},
        description="ServiceAccounts of `watcher`, `worker` and `patcher`, as namespace/name. Roles without "
        "an entry are the users `system:windowbox:ROLE`.",
    )

    @field_validator("service_accounts")
    @classmethod
    def _places(cls, accounts: dict[str, str]) -> dict[str, str]:
        for role, account in accounts.items():
            if role not in ("watcher", "worker", "patcher"):
                raise ValueError(f"{role!r} works with no Secrets: name watcher, worker or patcher")
            if account.count("/") != 1 or not all(account.split("/")):
                raise ValueError(f"{account!r} is no ServiceAccount: write namespace/name")
        return accounts
