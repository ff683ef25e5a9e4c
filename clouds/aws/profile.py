"""CloudProfiles of type aws: an AMI for each image, version and region."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from clouds.aws.api import CloudProfileConfig, ImageVersion
from clouds.frame import machineimages
from clouds.frame.cloud import ProfileReview
from clouds.frame.decoding import decode
from clouds.frame.gardenobjects import ProfileSpec
from clouds.frame.problems import Problem, required

_CONFIG = "spec.providerConfig"


def problems(profile: ProfileSpec) -> Iterator[Problem]:
    """AWS-P1 to AWS-P3."""
    if profile.provider_config is None:
        yield required(_CONFIG, "add a CloudProfileConfig with the AMIs of the machine images")
        return
    config = decode(CloudProfileConfig, profile.provider_config, _CONFIG)
    yield from machineimages.incomplete(config.machine_images, "ami")


def namespaced_problems(review: ProfileReview) -> Iterator[Problem]:
    config = CloudProfileConfig()
    if review.profile.provider_config is not None:
        config = decode(CloudProfileConfig, review.profile.provider_config, _CONFIG)
    for i, image in enumerate(config.machine_images):
        yield from machineimages.incomplete_image(image, "ami", f"{machineimages.IMAGES}[{i}]")
    yield from machineimages.problems(
        config.machine_images, review.profile.machine_images, review.parent.machine_images, _architectures
    )


def ami(config: CloudProfileConfig, name: str, version: str, region: str, architecture: str) -> str | None:
    """The AMI of an image (ALL-Z6)."""
    for image in config.machine_images:
        for one in image.versions if image.name == name else ():
            for each in one.regions if one.version == version else ():
                if (each.name, each.architecture) == (region, architecture):
                    return each.ami
    return None


def _architectures(version: ImageVersion) -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for region in version.regions:
        found[region.name].append(region.architecture)
    return found
