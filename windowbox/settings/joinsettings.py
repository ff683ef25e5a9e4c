"""How clusters are found that join by a mark on their control plane's Namespace."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

ACCESS_SECRET = "shoot-access-windowbox"
"""The Secret with the kubeconfig of a Shoot, in the namespace of its control plane."""


class JoinSettings(BaseModel):
    """Clusters that join by an annotation or a label of a Namespace in the runtime cluster."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool = Field(
        True, description="Let clusters join and leave by an annotation or label of their Namespace."
    )
    secret: str = Field("kubeconfig", description="Secret with the kubeconfig, if the Namespace names none.")
