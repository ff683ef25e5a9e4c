"""Machines and images of a CloudProfile, and its providerConfig for this provider."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from windowbox.errors import Malformed
from windowbox.models.cloudconfig import LoadBalancerConfig, Strict, explained
from windowbox.models.extensions import Part

Capabilities = dict[str, list[str]]
"""What a machine can do, or an image asks for: of each capability the values."""

_T = TypeVar("_T", bound=BaseModel)


class Capability(Part):
    """One that machines and images of the profile may have; the values that are preferred come first."""

    name: str
    values: list[str]


class MachineType(Part):
    name: str
    cpu: str | int | float = 0
    architecture: str | None = None
    capabilities: Capabilities | None = None
    usable: bool | None = None


class Stage(Part):
    """What a version is from some moment on."""

    classification: str
    start_time: str | None = None


class ImageVersion(Part):
    version: str
    classification: str | None = None
    expiration_date: str | None = None
    lifecycle: list[Stage] | None = None
    architectures: list[str] | None = None
    capability_flavors: list[Capabilities] | None = None


class MachineImage(Part):
    name: str
    versions: list[ImageVersion] | None = None


class MachineTypeName(Part):
    name: str


class MachineImageName(Part):
    name: str
    version: str | None = None


class BastionMachine(Part):
    """The machine type and image of Bastions, if the profile sets them."""

    machine_type: MachineTypeName | None = None
    machine_image: MachineImageName | None = None


class CloudProfileSpec(Part):
    bastion: BastionMachine | None = None
    machine_capabilities: list[Capability] | None = None
    machine_images: list[MachineImage] | None = None
    machine_types: list[MachineType] | None = None
    provider_config: dict[str, Any] | None = None


class Flavor(Strict):
    """An image for machines that can do something."""

    image: str
    capabilities: Capabilities | None = None


class Version(Strict):
    version: str
    image: str | None = None
    capability_flavors: list[Flavor] | None = None


class Image(Strict):
    name: str
    versions: list[Version] | None = None


class CloudProfileConfig(Strict):
    """The providerConfig of a CloudProfile: which container image stands for which machine image."""

    api_version: Literal["local.provider.extensions.gardener.cloud/v1alpha1"]
    kind: Literal["CloudProfileConfig"]
    machine_images: list[Image]
    load_balancer: LoadBalancerConfig | None = None


def profile(cluster_spec: Mapping[str, Any]) -> CloudProfileSpec:
    """The CloudProfile in the spec of a Cluster."""
    found = cluster_spec.get("cloudProfile")
    spec = found.get("spec") if isinstance(found, Mapping) else None
    return _parsed(CloudProfileSpec, spec or {}, "spec of the CloudProfile")


def config(profile: CloudProfileSpec) -> CloudProfileConfig:
    """The providerConfig of the profile. Unknown fields are errors."""
    if profile.provider_config is None:
        raise Malformed(
            "spec.providerConfig of the CloudProfile is missing: "
            "add a CloudProfileConfig with a container image for each version in machineImages"
        )
    return _parsed(CloudProfileConfig, profile.provider_config, "spec.providerConfig of the CloudProfile")


def _parsed(model: type[_T], content: object, what: str) -> _T:
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise Malformed(f"{what}: " + "; ".join(map(explained, error.errors()))) from error
