"""CloudProfiles of type alicloud: the ID of an image for each image, version and region."""

from __future__ import annotations

from collections.abc import Iterator

from clouds.alicloud.api import CloudProfileConfig
from clouds.frame import machineimages
from clouds.frame.decoding import decode
from clouds.frame.gardenobjects import ProfileSpec
from clouds.frame.problems import Problem, required

_CONFIG = "spec.providerConfig"
_CUSTOMERS_IMAGE = "m-"


def problems(profile: ProfileSpec) -> Iterator[Problem]:
    """ALI-P1 to ALI-P3."""
    if profile.provider_config is None:
        yield required(_CONFIG, "add a CloudProfileConfig with the IDs of the machine images")
        return
    config = decode(CloudProfileConfig, profile.provider_config, _CONFIG)
    yield from machineimages.incomplete(config.machine_images, "id")


def image_id(config: CloudProfileConfig, name: str, version: str, region: str) -> str | None:
    """The ID of an image (ALL-Z6)."""
    for image in config.machine_images:
        for one in image.versions if image.name == name else ():
            for each in one.regions if one.version == version else ():
                if each.name == region:
                    return each.id
    return None


def is_customers(image: str) -> bool:
    """Whether an image belongs to a customer, by its ID: the cloud itself is not asked."""
    return image.startswith(_CUSTOMERS_IMAGE)
