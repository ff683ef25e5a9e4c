"""The settings of ControlPlanes."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class ControlPlaneSettings(BaseModel):
    """What Shoots get."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ccm: Literal["none", "deployment"] = Field(
        "none",
        description="`none`: Shoots join, and windowbox serves their Services. `deployment`: each Shoot gets "
        "Gardener's cloud-controller-manager-local.",
    )
    webhooks: bool = Field(
        False,
        description="Give Shoots the configurations of the webhooks that `windowbox admit` serves. Requires "
        "the same `webhooks` settings as `admit`.",
    )
