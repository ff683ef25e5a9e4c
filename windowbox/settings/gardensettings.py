"""Settings of the access to the garden, which gardenlet injects."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, model_validator

_VERSION = r"^(v?\d+\.\d+\.\d+([-+].*)?)?$"


class GardenSettings(BaseModel):
    """Gardener's own cluster, and the Seed or Shoot that windowbox serves."""

    model_config = ConfigDict(extra="forbid", frozen=True)

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
