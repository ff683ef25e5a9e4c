"""In which namespaces windowbox may work with Secrets."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, field_validator


class GrantSettings(BaseModel):
    """What `windowbox grant` grants."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    namespaces: tuple[str, ...] = Field(
        ("garden", "shoot--*"),
        description="Namespaces, by name or pattern (`shoot--*`), with whose Secrets `windowbox grant` lets "
        "the roles work.",
    )
    name: str = Field(
        "windowbox",
        pattern=r"^[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?$",
        description="What the ClusterRoles and RoleBindings of this installation are called: "
        "`system:NAME:ROLE:secrets` and `NAME-ROLE-secrets`.",
    )
    service_accounts: dict[str, str] = Field(
        {},
        description="The ServiceAccounts of `watcher`, `worker` and `patcher`, as namespace/name; "
        "those that are absent are the users `system:windowbox:ROLE`.",
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
