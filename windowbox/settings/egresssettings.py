"""Where the API servers may be that kubeconfigs in Secrets name."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network

from pydantic import BaseModel, ConfigDict, Field

Networks = tuple[IPv4Network | IPv6Network, ...]


class EgressSettings(BaseModel):
    """Addresses to which kubeconfigs in Secrets may lead."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    denied: Networks = Field(
        (),
        description="Networks closed to provider clusters: those of the runtime cluster's nodes, Pods and "
        "Services, and your own. Loopback, link-local and metadata addresses are always closed.",
    )
    allowed: Networks = Field((), description="Exceptions from denied networks, including the default ones.")
