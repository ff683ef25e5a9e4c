"""Settings of joining clusters: their addresses, the garden, the rights that they grant."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator, model_validator

from windowbox.models.addresses import Network
from windowbox.settings.section import Section

Networks = tuple[Network, ...]


class EgressSettings(Section):
    """Clusters and addresses to which kubeconfigs in Secrets may lead."""

    denied: Networks = Field(
        (),
        description="Networks closed to provider clusters: those of the runtime cluster's nodes, Pods and "
        "Services, and your own. Loopback, link-local and metadata addresses are always closed.",
    )
    allowed: Networks = Field((), description="Exceptions from denied networks, including the default ones.")
    own_cluster: tuple[str, ...] = Field(
        (),
        description="Namespaces (names or patterns such as `shoot--PROJECT--*`) of Secrets whose empty "
        "kubeconfig means the cluster that the Secret is in, with windowbox's own rights.",
    )


_VERSION = r"^(v?\d+\.\d+\.\d+([-+].*)?)?$"


class GardenSettings(Section):
    """Gardener's own cluster, and the Seed or Shoot that windowbox serves."""

    kubeconfig: Path | None = Field(
        None,
        description="Kubeconfig file of the garden, where workers annotate their Seed or Shoot. Unset: the "
        "file that the environment variable GARDEN_KUBECONFIG names, if any.",
    )
    seed: str = Field("", description="Seed that windowbox serves. Empty: SEED_NAME.")
    shoot: str = Field("", description="Self-hosted Shoot that windowbox serves. Empty: SHOOT_NAME.")
    shoot_namespace: str = Field("", description="Namespace of that Shoot. Empty: SHOOT_NAMESPACE.")
    version: str = Field("", pattern=_VERSION, description="Gardener's version, as in `--gardener-version`.")

    @model_validator(mode="after")
    def _complete(self) -> GardenSettings:
        if bool(self.shoot) != bool(self.shoot_namespace):
            raise ValueError("garden.shoot and garden.shoot_namespace name one Shoot: set both or neither")
        return self


class GrantSettings(Section):
    """The namespaces and Secrets of `windowbox grant`."""

    namespaces: tuple[str, ...] = Field(
        ("garden", "shoot--*"),
        description="Namespaces (names or patterns) in which `windowbox grant` gives the roles rights on "
        "Secrets, and workers those on ManagedResources and NetworkPolicies.",
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


ACCESS_SECRET = "shoot-access-windowbox"
"""The Secret with the kubeconfig of a Shoot, in the namespace of its control plane."""


class JoinSettings(Section):
    """Clusters that join by an annotation or a label of a Namespace in the runtime cluster."""

    enabled: bool = Field(
        True, description="Let clusters join and leave by an annotation or label of their Namespace."
    )
    secret: str = Field("kubeconfig", description="Secret with the kubeconfig, if the Namespace names none.")
