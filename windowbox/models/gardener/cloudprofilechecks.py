"""Checks the providerConfig of a CloudProfile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from windowbox.models.fielderrors import first, forbidden, invalid, not_supported, required
from windowbox.models.gardener import capabilities
from windowbox.models.gardener.cloudprofile import (
    Capabilities,
    Capability,
    CloudProfileConfig,
    CloudProfileSpec,
    Flavor,
    Image,
    MachineImage,
    Version,
)

CONFIG = "spec.providerConfig"
_IMAGES = f"{CONFIG}.machineImages"
_ARCHITECTURE = "architecture"
_Key = frozenset[tuple[str, frozenset[str]]]


class Versions:
    """The versions of images. Of entries of the same image only the last counts, as for Gardener."""

    def __init__(self, images: Sequence[Image | MachineImage] | None) -> None:
        self.of: dict[str, set[str]] = {}
        """By the name of the image."""
        self._overridden: set[tuple[str, str]] = set()
        for image in images or []:
            self._overridden.update((image.name, version) for version in self.of.get(image.name, ()))
            self.of[image.name] = {one.version for one in image.versions or []}

    def remedy(self, name: str, version: str) -> str:
        """The addition to an error about a version that is missing here."""
        if (name, version) not in self._overridden:
            return ""
        return f": machine image {name} is listed more than once, and only its last entry counts: merge them"


def errors(config: CloudProfileConfig, profile: CloudProfileSpec) -> list[str]:
    """All errors of the config itself; if there are none, all images of the profile that it does not map."""
    definitions = profile.machine_capabilities or []
    known = _Known(definitions)
    return first(_of_config(config, known)) or first(_unmapped(config, profile, known, definitions))


class _Known:
    """The values of the capabilities that a profile defines, by name: there may be many of both."""

    def __init__(self, definitions: Sequence[Capability]) -> None:
        self.listed = {one.name: one.values for one in definitions}
        self.all = {one.name: frozenset(one.values) for one in definitions}

    def key(self, flavor: Capabilities) -> _Key:
        """Equal for flavors with the same meaning: a missing capability means all its values."""
        given = ((name, frozenset(values)) for name, values in flavor.items() if name in self.all)
        return frozenset((name, values) for name, values in given if values != self.all[name])


def _of_config(config: CloudProfileConfig, known: _Known) -> Iterator[str]:
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
            yield from _of_version(version, f"{path}.versions[{k}]", known)


def _of_version(version: Version, path: str, known: _Known) -> Iterator[str]:
    if not version.version:
        yield required(f"{path}.version", "the version must be given")
    if known.all:
        if version.image:
            detail = "the CloudProfile has machineCapabilities: give images in capabilityFlavors"
            yield forbidden(f"{path}.image", detail)
        for k, flavor in enumerate(version.capability_flavors or []):
            yield from _of_flavor(flavor, f"{path}.capabilityFlavors[{k}]", known)
        return
    if not version.image:
        yield required(f"{path}.image", "a container image must be given")
    if version.capability_flavors:
        detail = "the CloudProfile has no machineCapabilities: give the container image in image"
        yield forbidden(f"{path}.capabilityFlavors", detail)


def _of_flavor(flavor: Flavor, path: str, known: _Known) -> Iterator[str]:
    if not flavor.image:
        yield required(f"{path}.image", "a container image must be given")
    given: Capabilities = flavor.capabilities or {}
    for name, values in given.items():
        if name not in known.all:
            yield not_supported(f"{path}.capabilities", name, known.listed)
            continue
        for k, value in enumerate(values):
            if value not in known.all[name]:
                yield not_supported(f"{path}.capabilities.{name}[{k}]", value, known.listed[name])
    own = given.get(_ARCHITECTURE) or []
    if len(known.listed.get(_ARCHITECTURE, ())) > 1 and len(own) != 1:
        detail = "exactly one architecture must be given, as the CloudProfile has several"
        yield invalid(f"{path}.capabilities.{_ARCHITECTURE}", own, detail)


def _unmapped(
    config: CloudProfileConfig, profile: CloudProfileSpec, known: _Known, definitions: Sequence[Capability]
) -> Iterator[str]:
    # The capabilities of flavors, by image and version.
    mapped = {
        image.name: {
            version.version: {known.key(one.capabilities or {}) for one in version.capability_flavors or []}
            for version in image.versions or []
        }
        for image in config.machine_images
    }
    versions = Versions(config.machine_images)
    for i, image in enumerate(profile.machine_images or []):
        if not image.versions:
            continue
        path = f"{_IMAGES}[{i}]"
        if image.name not in mapped:
            yield required(path, f"machine image {image.name} of spec.machineImages has no entry")
        elif definitions:
            for version in image.versions:
                flavors, what = mapped[image.name].get(version.version), f"{image.name}@{version.version}"
                if flavors is None:
                    detail = f"version {what} of spec.machineImages has no entry"
                    yield required(path, detail + versions.remedy(image.name, version.version))
                    continue
                for wanted in version.capability_flavors or [{}]:
                    if known.key(wanted) not in flavors:
                        named = capabilities.defaulted(wanted, definitions).items()
                        asked = ", ".join(f"{key}: {'/'.join(values)}" for key, values in named)
                        yield required(path, f"version {what} has no capability flavor for {asked}")
