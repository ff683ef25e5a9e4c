"""CloudProfiles of type azure: where each image is, by version and architecture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from clouds.azure.api import CloudProfileConfig, DomainCount, Image, MachineImage
from clouds.frame import machineimages
from clouds.frame.cloud import ProfileReview
from clouds.frame.decoding import decode
from clouds.frame.gardenobjects import ProfileSpec
from clouds.frame.problems import Problem, forbidden, invalid, required

_CONFIG = "spec.providerConfig"
_GALLERIES = {"communityGalleryImageID": "CommunityGalleries", "sharedGalleryImageID": "SharedGalleries"}
"""Fields, and the head of what they hold."""


def problems(profile: ProfileSpec) -> Iterator[Problem]:
    if profile.provider_config is None:
        yield required(_CONFIG, "add a CloudProfileConfig with the locations of the machine images")
        return
    config = decode(CloudProfileConfig, profile.provider_config, _CONFIG)
    yield from _domain_counts(config.count_fault_domains, f"{_CONFIG}.countFaultDomains")
    yield from _domain_counts(config.count_update_domains, f"{_CONFIG}.countUpdateDomains")
    if not config.machine_images:
        yield required(machineimages.IMAGES, "add one machine image at least")
        return
    yield from _images(config.machine_images)
    yield from machineimages.unmapped(  # AZU-P3
        config.machine_images, profile.machine_images, "spec.machineImages", only_names=True
    )


def namespaced_problems(review: ProfileReview) -> Iterator[Problem]:
    """ALL-7, and fields that only the parent may set."""
    config, profile, parent = CloudProfileConfig(), review.profile, review.parent
    if profile.provider_config is not None:
        config = decode(CloudProfileConfig, profile.provider_config, _CONFIG)
    for name, value in (
        ("cloudConfiguration", config.cloud_configuration),
        ("countUpdateDomains", config.count_update_domains or None),
        ("countFaultDomains", config.count_fault_domains or None),
    ):
        if value is not None:
            yield forbidden(f"{_CONFIG}.{name}", "is set in the parent CloudProfile only: remove it")
    yield from _images(config.machine_images)
    yield from machineimages.problems_by_architecture(
        config.machine_images, profile.machine_images, parent.machine_images
    )
    own, inherited = ({one.name for one in each.machine_types} for each in (profile, parent))
    for i, one in enumerate(config.machine_types):
        path = f"{_CONFIG}.machineTypes[{i}]"
        if one.name in inherited:
            yield forbidden(path, f"machine type {one.name} is in the parent CloudProfile: remove it")
        if one.name not in own:
            yield required(path, f"machine type {one.name} is missing in spec.machineTypes: add or remove it")


def _domain_counts(counts: Sequence[DomainCount], path: str) -> Iterator[Problem]:
    """AZU-P1."""
    if not counts:
        yield required(path, "add the count of one region at least")
    for i, one in enumerate(counts):
        if not one.region:
            yield required(f"{path}[{i}].region", "name the region")
        if one.count < 0:
            yield invalid(f"{path}[{i}].count", one.count, "must not be negative: give 0 or more")


def _images(images: Sequence[MachineImage]) -> Iterator[Problem]:
    for i, image in enumerate(images):
        path = f"{machineimages.IMAGES}[{i}]"
        if not image.name:
            yield required(f"{path}.name", "give a name")
        if not image.versions:
            yield required(f"{path}.versions", f"add one version of image {image.name!r} at least")
        for j, version in enumerate(image.versions):
            where = f"{path}.versions[{j}]"
            if not version.version:
                yield required(f"{where}.version", "give a version")
            yield from _location(version, where)
            yield from machineimages.unknown_architecture(version.architecture, f"{where}.architecture")


def _location(image: Image, path: str) -> Iterator[Problem]:
    """AZU-P2."""
    given = {
        "urn": image.urn,
        "id": image.id,
        "communityGalleryImageID": image.community_gallery_image_id,
        "sharedGalleryImageID": image.shared_gallery_image_id,
    }
    if sum(value is not None for value in given.values()) != 1:
        yield required(path, f"must provide one of {', '.join(given)}")
    for name, value in given.items():
        where = f"{path}.{name}"
        if value == "":
            yield required(where, "must not be empty: give it, or remove the field")
        elif value and name == "urn" and value.count(":") != 3:
            yield invalid(where, value, "write it as Publisher:Offer:Sku:Version")
        elif value and name in _GALLERIES:
            head, parts = _GALLERIES[name], value.split("/")
            if len(parts) != 7 or parts[1].casefold() != head.casefold():
                yield invalid(where, value, f"write it as /{head}/GALLERY/Images/IMAGE/Versions/VERSION")
