"""What is wrong with the providerConfig of a CloudProfile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from windowbox.models import capabilities
from windowbox.models.capabilities import Known
from windowbox.models.cloudprofile import (
    Capabilities,
    Capability,
    CloudProfileConfig,
    CloudProfileSpec,
    Flavor,
    Image,
    ImageVersion,
    Version,
)
from windowbox.models.fielderrors import forbidden, invalid, not_supported, required

CONFIG = "spec.providerConfig"
_IMAGES = f"{CONFIG}.machineImages"
_ARCHITECTURE = "architecture"


def errors(config: CloudProfileConfig, profile: CloudProfileSpec) -> list[str]:
    """All errors of the config itself; if there are none, all images of the profile that it does not map."""
    definitions = profile.machine_capabilities or []
    return list(_of_config(config, definitions)) or list(_unmapped(config, profile, definitions))


def _of_config(config: CloudProfileConfig, definitions: Sequence[Capability]) -> Iterator[str]:
    if not config.machine_images:
        yield required(_IMAGES, "at least one machine image must be given")
    for i, image in enumerate(config.machine_images):
        path = f"{_IMAGES}[{i}]"
        if not image.name:
            yield required(f"{path}.name", "a machine image must have a name")
        if not image.versions:
            detail = f"at least one version of machine image {image.name!r} must be given"
            yield required(f"{path}.versions", detail)
        for k, version in enumerate(image.versions or []):
            yield from _of_version(version, f"{path}.versions[{k}]", definitions)


def _of_version(version: Version, path: str, definitions: Sequence[Capability]) -> Iterator[str]:
    if not version.version:
        yield required(f"{path}.version", "the version must be given")
    if definitions:
        if version.image:
            detail = "the CloudProfile has machineCapabilities: give images in capabilityFlavors"
            yield forbidden(f"{path}.image", detail)
        for k, flavor in enumerate(version.capability_flavors or []):
            yield from _of_flavor(flavor, f"{path}.capabilityFlavors[{k}]", definitions)
        return
    if not version.image:
        yield required(f"{path}.image", "a container image must be given")
    if version.capability_flavors:
        detail = "the CloudProfile has no machineCapabilities: give the container image in image"
        yield forbidden(f"{path}.capabilityFlavors", detail)


def _of_flavor(flavor: Flavor, path: str, definitions: Sequence[Capability]) -> Iterator[str]:
    if not flavor.image:
        yield required(f"{path}.image", "a container image must be given")
    known = {one.name: one.values for one in definitions}
    given: Capabilities = flavor.capabilities or {}
    for name, values in given.items():
        if name not in known:
            yield not_supported(f"{path}.capabilities", name, known)
        for k, value in enumerate(values):
            if value not in known.get(name, [value]):
                yield not_supported(f"{path}.capabilities.{name}[{k}]", value, known[name])
    own = given.get(_ARCHITECTURE) or []
    if len(known.get(_ARCHITECTURE, ())) > 1 and len(own) != 1:
        detail = "exactly one architecture must be given, as the CloudProfile has several"
        yield invalid(f"{path}.capabilities.{_ARCHITECTURE}", own, detail)


def _unmapped(
    config: CloudProfileConfig, profile: CloudProfileSpec, definitions: Sequence[Capability]
) -> Iterator[str]:
    for i, image in enumerate(profile.machine_images or []):
        if not image.versions:
            continue
        path = f"{_IMAGES}[{i}]"
        mapped = [one for one in config.machine_images if one.name == image.name]
        if not mapped:
            yield required(path, f"machine image {image.name} of spec.machineImages has no entry")
        elif definitions:
            for version in image.versions:
                yield from _unmapped_flavors(mapped, image.name, version, path, definitions)


def _unmapped_flavors(
    mapped: Iterable[Image], name: str, version: ImageVersion, path: str, definitions: Sequence[Capability]
) -> Iterator[str]:
    entries = [one for image in mapped for one in image.versions or [] if one.version == version.version]
    if not entries:
        yield required(path, f"version {name}@{version.version} of spec.machineImages has no entry")
        return
    offered = [
        capabilities.defaulted(flavor.capabilities, definitions)
        for entry in entries
        for flavor in entry.capability_flavors or []
    ]
    for wanted in capabilities.of_version(version, definitions):
        if not any(_same(wanted, one) for one in offered):
            asked = ", ".join(f"{key}: {'/'.join(values)}" for key, values in wanted.items())
            yield required(path, f"version {name}@{version.version} has no capability flavor for {asked}")


def _same(one: Known, other: Known) -> bool:
    return {name: set(values) for name, values in one.items()} == {
        name: set(values) for name, values in other.items()
    }
