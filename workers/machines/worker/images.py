"""Which container image machines of a pool run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from windowbox.errors import Malformed
from windowbox.models.gardener import capabilities, cloudprofile
from windowbox.models.gardener.capabilities import Known
from windowbox.models.gardener.cloudconfig import explained
from windowbox.models.gardener.cloudprofile import Capability, CloudProfileSpec, Version
from windowbox.models.gardener.worker import ProviderStatus, UsedImage, WorkerPool
from windowbox.models.objects import Object

_GROUP = "local.provider.extensions.gardener.cloud/v1alpha1"


def found(pool: WorkerPool, profile: CloudProfileSpec, worker: Object) -> UsedImage:
    """The image of a pool; that of an earlier run, if the CloudProfile does not have it any more."""
    definitions = profile.machine_capabilities or []
    machine = next(one for one in profile.machine_types or [] if one.name == pool.machine_type)
    able = capabilities.defaulted(machine.capabilities, definitions)
    image = pool.machine_image
    assert image is not None  # specs has checked it
    reason = f"spec.providerConfig of the CloudProfile has no image {image.name!r} {image.version!r}"
    if entry := _entry(profile, image.name, image.version):
        try:
            return _chosen(entry, image.name, able, definitions)
        except Malformed as error:
            reason = str(error)
    for used in _used(worker):
        if (used.name, used.version) == (image.name, image.version) and _fits(used, able, definitions):
            return used
    raise Malformed(
        f"could not find machine image for {image.name}/{image.version} neither in cloud profile nor in "
        f"worker status: {reason}; add it to machineImages there, or correct machineImage of pool "
        f"{pool.name!r}"
    )


def status(images: Iterable[UsedImage], profile: CloudProfileSpec) -> dict[str, Any]:
    """`status.providerStatus`: the images in use, each once."""
    definitions = profile.machine_capabilities or []
    kept: dict[tuple[Any, ...], UsedImage] = {}
    for image in images:
        known = capabilities.defaulted(image.capabilities, definitions)
        capable = tuple(sorted((name, tuple(sorted(values))) for name, values in known.items()))
        kept.setdefault((image.name, image.version, capable), image)
    listed = [image.model_dump(by_alias=True, exclude_none=True) for image in kept.values()]
    return {"apiVersion": _GROUP, "kind": "WorkerStatus", "machineImages": listed}


def _entry(profile: CloudProfileSpec, name: str, version: str) -> Version | None:
    if profile.provider_config is None:
        return None
    config = cloudprofile.config(profile)
    versions = [one for image in config.machine_images if image.name == name for one in image.versions or []]
    return next((one for one in versions if one.version == version), None)


def _chosen(entry: Version, name: str, able: Known, definitions: Sequence[Capability]) -> UsedImage:
    """The image, or that one of its flavors that suits the machine best."""
    if not definitions:
        if not entry.image:
            raise Malformed(f"image {name!r} {entry.version!r} in machineImages has no container image")
        return UsedImage(name=name, version=entry.version, image=entry.image)
    made = [
        UsedImage(name=name, version=entry.version, image=flavor.image, capabilities=flavor.capabilities)
        for flavor in entry.capability_flavors or []
    ]
    fitting = [one for one in made if _fits(one, able, definitions)]
    if not fitting:
        raise Malformed("no compatible flavor found")
    for definition in definitions:
        for value in definition.values:
            if len(fitting) == 1:
                return fitting[0]
            fitting = [
                one for one in fitting if value in _known(one, definitions)[definition.name]
            ] or fitting
    if len(fitting) > 1:
        raise Malformed(
            "could not determine a unique capability flavor; "
            "this is usually attributed to an invalid CloudProfile"
        )
    return fitting[0]


def _fits(image: UsedImage, able: Known, definitions: Sequence[Capability]) -> bool:
    return not definitions or capabilities.fit(able, _known(image, definitions))


def _known(image: UsedImage, definitions: Iterable[Capability]) -> Known:
    return capabilities.defaulted(image.capabilities, definitions)


def _used(worker: Object) -> list[UsedImage]:
    """The images that the last runs have used."""
    said = worker.status.get("providerStatus")
    if not isinstance(said, Mapping):
        return []
    try:
        return ProviderStatus.model_validate(said).machine_images or []
    except ValidationError as error:
        what = f"could not decode worker status of worker '{worker.namespace}/{worker.name}'"
        reasons = "; ".join(map(explained, error.errors()))
        raise Malformed(f"{what}: status.providerStatus.{reasons}") from error
