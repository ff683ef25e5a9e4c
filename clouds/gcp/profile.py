"""CloudProfiles of type gcp: the path of an image for each image, version and architecture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from clouds.frame import machineimages
from clouds.frame.cloud import ProfileReview
from clouds.frame.decoding import decode
from clouds.frame.gardenobjects import AddedImage, MachineImage, ProfileSpec
from clouds.frame.problems import Problem, required
from clouds.gcp.api import CloudProfileConfig

_CONFIG = "spec.providerConfig"


def problems(profile: ProfileSpec) -> Iterator[Problem]:
    if profile.provider_config is None:
        yield required(_CONFIG, "add a CloudProfileConfig with the paths of the machine images")
        return
    config = decode(CloudProfileConfig, profile.provider_config, _CONFIG)
    yield from _images(config, profile.machine_images, "spec")


def namespaced_problems(review: ProfileReview) -> Iterator[Problem]:
    config = CloudProfileConfig()
    if review.profile.provider_config is not None:
        config = decode(CloudProfileConfig, review.profile.provider_config, _CONFIG)
    # The extension puts its prefix before a path that has one already.
    yield from _images(config, review.profile.machine_images, _CONFIG)
    yield from machineimages.problems_by_architecture(
        config.machine_images, review.profile.machine_images, review.parent.machine_images
    )


def _images(
    config: CloudProfileConfig, images: Sequence[MachineImage | AddedImage], prefix: str
) -> Iterator[Problem]:
    """GCP-P1."""
    yield from machineimages.unmapped(config.machine_images, images, f"{prefix}.machineImages")
    for i, image in enumerate(config.machine_images):
        for j, version in enumerate(image.versions):
            path = f"{prefix}.providerConfig.machineImages[{i}].versions[{j}]"
            if not version.image:
                yield required(
                    f"{path}.image", f"must provide the image field for {image.name}@{version.version}"
                )
            yield from machineimages.unknown_architecture(version.architecture, f"{path}.architecture")
