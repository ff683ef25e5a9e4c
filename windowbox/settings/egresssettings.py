"""Where the API servers may be that kubeconfigs in Secrets name."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network

from pydantic import BaseModel, ConfigDict, Field

Networks = tuple[IPv4Network | IPv6Network, ...]


class EgressSettings(BaseModel):
    """Addresses that are connected to, or not, because a Secret says so."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    denied: Networks = Field(
        (),
        description="Networks where no provider cluster may be: those of the nodes, Pods and Services of the "
        "cluster windowbox serves, and others of your own. Loopback, link-local and cloud metadata addresses "
        "are always denied, to clusters that join by a Secret as well.",
    )
    allowed: Networks = Field((), description="Exceptions from what is denied, by default or by the setting.")
