"""Machines and images of a CloudProfile, and its providerConfig for this provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ValidationError

from windowbox.errors import Malformed
from windowbox.models.extensions import Part
from windowbox.models.gardener.cloudconfig import LoadBalancerConfig, Strict, explained

Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]
"""A string that is empty where it is missing: which ones have to be there, validation says."""


def _or_none(value: object) -> object:
    return [] if value is None else value


Capabilities = dict[str, Annotated[list[Text], BeforeValidator(_or_none)]]
"""What a machine can do, or an image asks for: of each capability the values."""

_T = TypeVar("_T", bound=BaseModel)

_LARGEST_CONFIG = 10_000
"""Values in a providerConfig: a thousand versions and more."""
_SHOWN = 20
"""Errors in a message."""
_LISTED = 1_000
"""If there are more errors, none is shown: to list them takes seconds."""


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
    version: Text = ""
    classification: str | None = None
    expiration_date: str | None = None
    lifecycle: list[Stage] | None = None
    architectures: list[str] | None = None
    capability_flavors: list[Capabilities] | None = None


class MachineImage(Part):
    name: Text = ""
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

    image: Text = ""
    capabilities: Capabilities | None = None


class Version(Strict):
    version: Text = ""
    image: str | None = None
    capability_flavors: list[Flavor] | None = None


class Image(Strict):
    name: Text = ""
    versions: list[Version] | None = None


Images = Annotated[Sequence[Image], BeforeValidator(_or_none)]


class CloudProfileConfig(Strict):
    """The providerConfig of a CloudProfile: which container image stands for which machine image."""

    api_version: Literal["local.provider.extensions.gardener.cloud/v1alpha1"]
    kind: Literal["CloudProfileConfig"]
    machine_images: Images = ()
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
    return decoded(profile.provider_config, "spec.providerConfig of the CloudProfile")


def decoded(content: object, what: str) -> CloudProfileConfig:
    """A providerConfig. Malformed if it is none, or has unknown fields; `what` is what errors call it."""
    require_small(content, what, _LARGEST_CONFIG)
    return _parsed(CloudProfileConfig, content, what)


def require_small(content: object, what: str, most: int) -> None:
    """Malformed if there are more values in it: each may be an error, and all are collected."""
    waiting, count = [content], 0
    while waiting:
        one = waiting.pop()
        within = [*one.values()] if isinstance(one, Mapping) else one if isinstance(one, list) else ()
        count += len(within)
        if count > most:
            raise Malformed(f"{what} has more than {most} values: take out what is not needed any more")
        waiting.extend(within)


def listed(error: ValidationError) -> str:
    """The errors of fields, and the remedies; the first ones if there are many."""
    if error.error_count() > _LISTED:
        return f"{error.error_count()} values are wrong: correct their types and names"
    errors = error.errors(include_url=False)
    more = [f"and {len(errors) - _SHOWN} more errors"] if len(errors) > _SHOWN else []
    return "; ".join([*map(explained, errors[:_SHOWN]), *more])


def _parsed(model: type[_T], content: object, what: str) -> _T:
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise Malformed(f"{what}: {listed(error)}") from error
