"""The settings of ControlPlanes."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class ControlPlaneSettings(BaseModel):
    """What Shoots get from us."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ccm: Literal["none", "deployment"] = Field(
        "none",
        description="none: Shoots join, and the pool `loadbalancer` serves their Services; deployment: each "
        "Shoot gets a Deployment of Gardener's cloud-controller-manager-local.",
    )
    webhooks: bool = Field(
        False,
        description="Whether Shoots get the configurations of the webhooks that `windowbox admit` serves, "
        "with the same settings, webhooks.namespace among them.",
    )
