"""What a reconciliation of equinixmetal refuses: this cloud has no admission, so all errors come late."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from clouds.equinixmetal.api import CloudProfileConfig, ControlPlaneConfig, WorkerConfig
from clouds.frame.admission import credentials_reason
from clouds.frame.cloud import Account, ShootReview
from clouds.frame.decoding import decode, decode_shared
from clouds.frame.gardenobjects import ProfileSpec
from clouds.frame.problems import Problem, plain, required
from windowbox.errors import Malformed

_CONFIG = "spec.providerConfig of the CloudProfile"
_CONTROL_PLANE = "spec.provider.controlPlaneConfig"
_LONGEST_PROJECT = 64


def secret_reason(data: Mapping[str, bytes], old: Mapping[str, bytes] | None) -> str | None:
    """EQX-S1."""
    missing = [name for name in ("apiToken", "projectID") if name not in data]
    return (
        f"{' and '.join(missing)} missing: add what the console of Equinix Metal shows" if missing else None
    )


def account(data: Mapping[str, bytes]) -> Account:
    """The project, whose ID machines and keys show."""
    project = data["projectID"].decode(errors="replace")
    if len(project) > _LONGEST_PROJECT:
        raise Malformed(f"projectID has more than {_LONGEST_PROJECT} characters: copy it from the console")
    return Account(project, {"project": project})


def profile_problems(profile: ProfileSpec) -> Iterator[Problem]:
    """EQX-P2: the controllers have to be able to read the config."""
    _config(profile)
    return iter(())


def shoot_problems(review: ShootReview) -> Iterator[Problem]:
    shoot, config = review.shoot, _config(review.profile)
    if reason := credentials_reason(review, secret_reason):
        yield plain(reason)
    provider = shoot.spec.provider
    if provider.control_plane_config is not None:  # EQX-C1
        decode(ControlPlaneConfig, provider.control_plane_config, _CONTROL_PLANE, kind_optional=True)
    known = {(image.name, one.version) for image in config.machine_images for one in image.versions}
    for i, pool in enumerate(provider.workers):
        path = f"spec.provider.workers[{i}]"
        if pool.provider_config is not None:  # EQX-W1
            decode(WorkerConfig, pool.provider_config, f"{path}.providerConfig", kind_optional=True)
        image = pool.machine.image
        if image is None or (image.name, image.version) not in known:
            detail = "is no image of the CloudProfile: add it to its providerConfig"
            yield plain(f"{path}.machine.image: {image and image.name}@{image and image.version} {detail}")


def unused_problems(profile: ProfileSpec) -> Iterator[Problem]:
    """The validator that the extension has and never calls: it knows no iPXE scripts."""
    config = _config(profile)
    if not config.machine_images:
        yield required("machineImages", "must provide at least one machine image")
    for i, image in enumerate(config.machine_images):
        path = f"machineImages[{i}]"
        if not image.name:
            yield required(f"{path}.name", "must provide a name")
        if not image.versions:
            yield required(f"{path}.versions", "must provide at least one version")
        for j, version in enumerate(image.versions):
            for name in ("version", "id"):
                if not getattr(version, name):
                    yield required(f"{path}.versions[{j}].{name}", f"must provide the {name}")


def _config(profile: ProfileSpec) -> CloudProfileConfig:
    return decode_shared(CloudProfileConfig, profile.provider_config, _CONFIG, kind_optional=True)
