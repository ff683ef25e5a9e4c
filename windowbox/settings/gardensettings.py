"""Settings of the access to the garden, which gardenlet injects."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, model_validator

_VERSION = r"^(v?\d+\.\d+\.\d+([-+].*)?)?$"


class GardenSettings(BaseModel):
    """Gardener's own cluster, and as what windowbox is known there."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kubeconfig: Path | None = Field(
        None,
        description="Kubeconfig file of the garden; unset: the one that the environment variable "
        "GARDEN_KUBECONFIG names, if any. With it, a worker shows that the access works: it annotates its "
        "Seed or Shoot.",
    )
    seed: str = Field("", description="The Seed that windowbox serves; by default SEED_NAME.")
    shoot: str = Field("", description="The self-hosted Shoot that it serves; by default SHOOT_NAME.")
    shoot_namespace: str = Field("", description="The namespace of that Shoot; by default SHOOT_NAMESPACE.")
    version: str = Field("", pattern=_VERSION, description="Gardener's version, as --gardener-version.")

    @model_validator(mode="after")
    def _complete(self) -> GardenSettings:
        if bool(self.shoot) != bool(self.shoot_namespace):
            raise ValueError("garden.shoot and garden.shoot_namespace name one Shoot: set both or neither")
        return self
