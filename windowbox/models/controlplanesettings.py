"""The settings of ControlPlanes."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class ControlPlaneSettings(BaseModel):
    """What serves the load balancers of Shoots."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ccm: Literal["none", "deployment"] = Field(
        "none",
        description="none: Shoots join, and the pool `loadbalancer` serves their Services; deployment: each "
        "Shoot gets a Deployment of Gardener's cloud-controller-manager-local.",
    )
