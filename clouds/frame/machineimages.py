"""ALL-7: the machine images of a NamespacedCloudProfile, against those of its parent and its own config."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from clouds.frame.gardenobjects import AddedImage, AddedVersion, MachineImage
from clouds.frame.problems import Problem, forbidden, invalid, not_supported, required

IMAGES = "spec.providerConfig.machineImages"
ARCHITECTURES = ("amd64", "arm64")


class ConfigVersion(Protocol):
    """A version of an image in the config of a cloud."""

    @property
    def version(self) -> str: ...


_V = TypeVar("_V", bound=ConfigVersion, covariant=True)


class ConfigImage(Protocol[_V]):
    """An image in the config of a cloud."""

    @property
    def name(self) -> str: ...
    @property
    def versions(self) -> Sequence[_V]: ...


def problems(
    config: Sequence[ConfigImage[_V]],
    added: Sequence[AddedImage],
    parent: Sequence[MachineImage],
    architectures: Callable[[_V], Mapping[str, Sequence[str]]],
) -> Iterator[Problem]:
    """What the profile adds has to be in its config, for each architecture in each mapped region; no more.

    `architectures` are those of one version in the config, by region. Of entries with the same name the last
    counts.
    """
    mapped = {image.name: {one.version: one for one in image.versions} for image in config}
    inherited = {image.name: {one.version for one in image.versions} for image in parent}
    own = {image.name: {one.version: one for one in image.versions} for image in added}
    for name, versions in own.items():
        if name not in inherited and name not in mapped:
            yield required(IMAGES, f"machine image {name} is missing: add it with all its versions")
            continue
        for version, wanted in versions.items():
            found = mapped.get(name, {}).get(version)
            if found is None and version not in inherited.get(name, ()):
                yield required(IMAGES, f"machine image version {name}@{version} is missing: add it")
            by_region = architectures(found) if found is not None else {}
            yield from _architecture_problems(f"{name}@{version}", wanted, by_region)
    for i, image in enumerate(config):
        path = f"{IMAGES}[{i}]"
        if image.name not in own:
            detail = (
                f"machine image {image.name} is missing in spec.machineImages: add it there, or remove it"
            )
            yield required(path, detail)
        for j, one in enumerate(image.versions):
            which, where = f"{image.name}@{one.version}", f"{path}.versions[{j}]"
            if one.version in inherited.get(image.name, ()):
                yield forbidden(
                    where, f"machine image version {which} is in the parent CloudProfile: remove it"
                )
            if image.name in own and one.version not in own[image.name]:
                yield invalid(where, which, "is missing in spec.machineImages: add it there, or remove it")


def _architecture_problems(
    which: str, wanted: AddedVersion, by_region: Mapping[str, Sequence[str]]
) -> Iterator[Problem]:
    for region, found in by_region.items():
        for one in set(found) - set(wanted.architectures):
            detail = f"{which} has no architecture {one} in spec.machineImages: add it, or remove its entry"
            yield forbidden(IMAGES, f"{detail} of region {region}")
    for one in wanted.architectures:
        if not by_region:
            yield required(IMAGES, f"{which} with architecture {one} is missing: add it")
        for region, found in by_region.items():
            if one not in found:
                yield required(
                    IMAGES, f"{which} with architecture {one} is missing in region {region}: add it"
                )


def incomplete(config: Sequence[Any], key: str, *, regions_required: bool = True) -> Iterator[Problem]:
    """Images without a name, a version or a region, and regions without their name or this key."""
    if not config:
        yield required(IMAGES, "add one machine image at least")
    for i, image in enumerate(config):
        yield from incomplete_image(image, key, f"{IMAGES}[{i}]", regions_required=regions_required)


def incomplete_image(image: Any, key: str, path: str, *, regions_required: bool = True) -> Iterator[Problem]:
    if not image.name:
        yield required(f"{path}.name", "give a name")
    if not image.versions:
        yield required(f"{path}.versions", f"add one version of machine image {image.name!r} at least")
    for j, version in enumerate(image.versions):
        where = f"{path}.versions[{j}]"
        if not version.version:
            yield required(f"{where}.version", "give a version")
        if not version.regions and regions_required:
            yield required(f"{where}.regions", f"add one region with the {key} in it at least")
        for k, region in enumerate(version.regions):
            for each in ("name", key):
                if not getattr(region, each):
                    yield required(f"{where}.regions[{k}].{each}", f"give the {each}")
            if hasattr(region, "architecture"):
                yield from unknown_architecture(region.architecture, f"{where}.regions[{k}].architecture")


class ArchitectureVersion(ConfigVersion, Protocol):
    """A version of an image for one architecture, in the config of a cloud."""

    @property
    def architecture(self) -> str: ...


_A = TypeVar("_A", bound=ArchitectureVersion, covariant=True)


def unknown_architecture(architecture: str, path: str) -> Iterator[Problem]:
    if architecture not in ARCHITECTURES:
        yield not_supported(path, architecture, ARCHITECTURES)


def unmapped(
    config: Sequence[ConfigImage[_A]],
    images: Sequence[MachineImage | AddedImage],
    path: str,
    *,
    only_names: bool = False,
) -> Iterator[Problem]:
    """Images, versions and architectures of a profile that its config does not have.

    If `only_names` count, images without versions are looked for too, and architectures may be any.
    """
    mapped = _by_architecture(config)
    for i, image in enumerate(images):
        if image.name not in mapped and (image.versions or only_names):
            yield required(f"{path}[{i}]", f"image {image.name!r} is missing in providerConfig: add it")
            continue
        versions: Sequence[AddedVersion] = image.versions
        for j, version in enumerate(versions):
            for one in version.architectures:
                where = f"{path}[{i}].versions[{j}]"
                if not only_names:
                    yield from unknown_architecture(one, f"{where}.architectures")
                if (version.version, one) not in mapped[image.name]:
                    which = f"{image.name}@{version.version} with architecture {one}"
                    yield required(where, f"{which} is missing in providerConfig: add it")


def problems_by_architecture(
    config: Sequence[ConfigImage[_A]], added: Sequence[AddedImage], parent: Sequence[MachineImage]
) -> Iterator[Problem]:
    """The same as `problems` where each entry of the config is for one architecture."""
    mapped, own = _by_architecture(config), {image.name: image for image in added}
    inherited = {image.name: {one.version for one in image.versions} for image in parent}
    for name, image in own.items():
        if name not in inherited and name not in mapped:
            yield required(IMAGES, f"machine image {name} is missing: add it with all its versions")
            continue
        for version in {one.version: one for one in image.versions}.values():
            for one in version.architectures if version.version not in inherited.get(name, ()) else ():
                if (version.version, one) not in mapped.get(name, ()):
                    yield required(
                        IMAGES, f"{name}@{version.version} with architecture {one} is missing: add it"
                    )
    for i, entry in enumerate(config):
        path = f"{IMAGES}[{i}]"
        for j, each in enumerate(entry.versions):
            if each.version in inherited.get(entry.name, ()):
                detail = f"{entry.name}@{each.version} is in the parent CloudProfile: remove it"
                yield forbidden(f"{path}.versions[{j}]", detail)
        if entry.name not in own:
            yield required(
                path, f"machine image {entry.name} is missing in spec.machineImages: add or remove it"
            )
            continue
        versions = {one.version: one for one in own[entry.name].versions}
        for j, each in enumerate(entry.versions):
            found, which = versions.get(each.version), f"{entry.name}@{each.version}"
            if found is None:
                yield invalid(
                    f"{path}.versions[{j}]", which, "is missing in spec.machineImages: add or remove it"
                )
            if found is None or each.architecture not in found.architectures:
                detail = (
                    f"{which} has no architecture {each.architecture} in spec.machineImages: add or remove it"
                )
                yield forbidden(IMAGES, detail)


def _by_architecture(config: Sequence[ConfigImage[_A]]) -> dict[str, set[tuple[str, str]]]:
    return {image.name: {(one.version, one.architecture) for one in image.versions} for image in config}
