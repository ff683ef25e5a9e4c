"""Chooses the machine type and the container image of a Bastion. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from enum import IntEnum

from windowbox.errors import Malformed
from windowbox.models.extensions import instant
from windowbox.models.gardener import capabilities, cloudprofile
from windowbox.models.gardener.capabilities import Known
from windowbox.models.gardener.cloudprofile import (
    BastionMachine,
    CloudProfileConfig,
    CloudProfileSpec,
    Flavor,
    ImageVersion,
    MachineImage,
    MachineType,
    Version,
)
from windowbox.models.objects import Object

_QUANTITY = re.compile(r"(\d+(?:\.\d*)?|\.\d+)([numkM]?)", re.ASCII)
_SUFFIXES = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6}
_WHERE = "of the CloudProfile"


def image(profile: CloudProfileSpec, now: datetime, current: str = "") -> str:
    """The container image for a Bastion. An existing one keeps its image for as long as the CloudProfile has
    it: a newer image is no reason to cut sessions."""
    config = cloudprofile.config(profile)
    if current and current in _known(config):
        return current
    machine, name, version = chosen(profile, now)
    return lookup(config, name, version, machine, profile)


def of_pod(pod: Object | None) -> str:
    """The image of an existing Pod; empty if there is no Pod, or it names no image."""
    match pod and pod.spec.get("containers"):
        case [{"image": str(image)}, *_]:
            return image
        case _:
            return ""


def chosen(profile: CloudProfileSpec, now: datetime) -> tuple[MachineType, str, str]:
    """The machine type, and the name and version of its image.

    The best standing that any image has comes first, then the smallest machine that it fits, then the order
    of images in the profile, then the highest version.
    """
    bastion = profile.bastion or BastionMachine()
    definitions = profile.machine_capabilities or []
    version = bastion.machine_image.version if bastion.machine_image else None
    machines, images = _machines(profile, bastion), _images(profile, bastion)
    for wanted in Standing:
        for machine in machines:
            able = capabilities.of_machine(machine, definitions)
            for found in images:
                fitting = [
                    one.version
                    for one in found.versions or []
                    if (one.version == version if version else standing(one, now) is wanted)
                    and any(capabilities.fit(able, f) for f in capabilities.of_version(one, definitions))
                ]
                if fitting:
                    return machine, found.name, max(fitting, key=order)
    raise Malformed(_nothing_fits(bastion, machines, images))


def lookup(
    config: CloudProfileConfig, name: str, version: str, machine: MachineType, profile: CloudProfileSpec
) -> str:
    """The container image for a machine image on a machine."""
    entry = _entry(config, name, version)
    where = f"spec.providerConfig {_WHERE}: version {version!r} of image {name!r} in machineImages"
    definitions = profile.machine_capabilities or []
    if not definitions:
        if not entry.image:
            raise Malformed(f"{where} has no image: name a container image")
        return entry.image

    def known(flavor: Flavor) -> Known:
        return capabilities.defaulted(flavor.capabilities, definitions)

    able = capabilities.of_machine(machine, definitions)
    fitting = [flavor for flavor in entry.capability_flavors or [] if capabilities.fit(able, known(flavor))]
    if not fitting:
        raise Malformed(
            f"{where} has no capabilityFlavors that fit machine type {machine.name!r} ({_listed(able)})"
        )
    return capabilities.best(fitting, known, definitions).image


def _machines(profile: CloudProfileSpec, bastion: BastionMachine) -> list[MachineType]:
    """The machine types to choose from, the smallest first."""
    offered = profile.machine_types or []
    if bastion.machine_type:
        name = bastion.machine_type.name
        if found := next((machine for machine in offered if machine.name == name), None):
            return [found]
        raise Malformed(
            f"spec.bastion.machineType.name {_WHERE} is {name!r}, which is not among its machineTypes: "
            "correct it, or add the type"
        )
    usable = [machine for machine in offered if machine.usable is not False]
    if not usable:
        raise Malformed(f"spec.machineTypes {_WHERE} has nothing that may be used: add a machine type")
    return sorted(usable, key=_cpus)


def _images(profile: CloudProfileSpec, bastion: BastionMachine) -> list[MachineImage]:
    offered = profile.machine_images or []
    if not bastion.machine_image:
        return offered
    name, version = bastion.machine_image.name, bastion.machine_image.version
    found = [image for image in offered if image.name == name]
    if not found:
        raise Malformed(
            f"spec.bastion.machineImage.name {_WHERE} is {name!r}, which is not among its machineImages: "
            "correct it, or add the image"
        )
    if version and not any(one.version == version for image in found for one in image.versions or []):
        raise Malformed(
            f"spec.bastion.machineImage.version {_WHERE} is {version!r}, which image {name!r} does not have: "
            "correct it, or add the version"
        )
    return found


def _cpus(machine: MachineType) -> Decimal:
    match = _QUANTITY.fullmatch(str(machine.cpu))
    if match is None:
        raise Malformed(
            f"cpu of {machine.name!r} in spec.machineTypes {_WHERE} is {str(machine.cpu)!r:.50}: "
            "give a number such as 2 or 500m"
        )
    return Decimal(match[1]).scaleb(_SUFFIXES[match[2]])


def _nothing_fits(
    bastion: BastionMachine, machines: Iterable[MachineType], images: Sequence[MachineImage]
) -> str:
    types = ", ".join(machine.name for machine in machines)
    if bastion.machine_image:
        return f"spec.bastion.machineImage {_WHERE} fits none of the machine types {types}: choose another"
    names = ", ".join(image.name for image in images) or "there are none"
    return (
        f"spec.machineImages {_WHERE} has no version that fits one of the machine types {types} "
        f"(images: {names}): add one of their architecture"
    )


def _entry(config: CloudProfileConfig, name: str, version: str) -> Version:
    for image in config.machine_images:
        for entry in image.versions or []:
            if (image.name, entry.version) == (name, version):
                return entry
    raise Malformed(
        f"spec.providerConfig {_WHERE}: machineImages does not have version {version!r} of image {name!r}: "
        "add it with its container image"
    )


def _known(config: CloudProfileConfig) -> Iterator[str]:
    for image in config.machine_images:
        for version in image.versions or []:
            yield from filter(None, [version.image])
            yield from (flavor.image for flavor in version.capability_flavors or [])


def _listed(known: Known) -> str:
    return ", ".join(f"{name}: {'/'.join(values)}" for name, values in known.items())


_SEMVER = re.compile(
    r"v?(\d{1,18})(?:\.(\d{1,18}))?(?:\.(\d{1,18}))?(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?", re.ASCII
)
_ALWAYS = datetime.min.replace(tzinfo=UTC)

Order = tuple[object, ...]


class Standing(IntEnum):
    """How much a version is to be preferred; the best is the smallest."""

    SUPPORTED = 0
    DEPRECATED = 1
    PREVIEW = 2
    EXPIRED = 3


_STANDINGS = {
    "supported": Standing.SUPPORTED,
    "deprecated": Standing.DEPRECATED,
    "preview": Standing.PREVIEW,
}


def standing(version: ImageVersion, now: datetime) -> Standing:
    """The classification of a version now: supported by default."""
    if version.lifecycle:
        begun = [(instant(stage.start_time) or _ALWAYS, stage.classification) for stage in version.lifecycle]
        passed = [(start, name) for start, name in begun if start <= now]
        return _STANDINGS.get(max(passed, key=lambda stage: stage[0])[1] if passed else "", Standing.EXPIRED)
    expires = instant(version.expiration_date)
    if expires is not None and expires <= now:
        return Standing.EXPIRED
    return _STANDINGS.get(version.classification or "supported", Standing.EXPIRED)


def order(version: str) -> Order:
    """A key by which semantic versions sort as they should (semver.org, 11); others come before all."""
    match = _SEMVER.fullmatch(version)
    if match is None:
        return (0,)
    numbers = tuple(int(part or 0) for part in match.group(1, 2, 3))
    # A pre-release is lower than its release.
    before = tuple(map(_identifier, match[4].split("."))) if match[4] else ()
    return (1, numbers, (0 if before else 1, before))


def _identifier(text: str) -> Order:
    return (0, int(text), "") if text.isdecimal() and len(text) < 19 else (1, 0, text)
