"""The container image of a pool's machines, from the CloudProfile or from the Worker's own status. Pure."""

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


def image(pool: WorkerPool, profile: CloudProfileSpec, worker: Object) -> UsedImage:
    """The image of a pool. One that the CloudProfile has lost is taken from the Worker's status."""
    definitions = profile.machine_capabilities or []
    machine = next(one for one in profile.machine_types or [] if one.name == pool.machine_type)
    able = capabilities.defaulted(machine.capabilities, definitions)
    asked = pool.machine_image
    assert asked is not None  # the plan has checked it
    reason = f"spec.providerConfig of the CloudProfile has no image {asked.name!r} {asked.version!r}"
    listed = cloudprofile.config(profile).machine_images if profile.provider_config is not None else []
    versions = (one for known in listed if known.name == asked.name for one in known.versions or [])
    if entry := next((one for one in versions if one.version == asked.version), None):
        try:
            return _of_entry(entry, asked.name, able, definitions)
        except Malformed as error:
            reason = str(error)
    reported, before = worker.status.get("providerStatus"), list[UsedImage]()
    if isinstance(reported, Mapping):
        try:
            before = ProviderStatus.model_validate(reported).machine_images or []
        except ValidationError as error:
            what = f"could not decode worker status of worker '{worker.namespace}/{worker.name}'"
            reasons = "; ".join(map(explained, error.errors()))
            raise Malformed(f"{what}: status.providerStatus.{reasons}") from error
    for used in before:
        if (used.name, used.version) == (asked.name, asked.version) and _fits(used, able, definitions):
            return used
    raise Malformed(
        f"could not find machine image for {asked.name}/{asked.version} neither in cloud profile nor in "
        f"worker status: {reason}; add it to machineImages there, or correct machineImage of pool "
        f"{pool.name!r}"
    )


def provider_status(images: Iterable[UsedImage], profile: CloudProfileSpec) -> dict[str, Any]:
    """`status.providerStatus`: the images in use, each once."""
    definitions = profile.machine_capabilities or []
    kept: dict[tuple[Any, ...], UsedImage] = {}
    for one in images:
        known = capabilities.defaulted(one.capabilities, definitions)
        capable = tuple(sorted((name, tuple(sorted(values))) for name, values in known.items()))
        kept.setdefault((one.name, one.version, capable), one)
    listed = [one.model_dump(by_alias=True, exclude_none=True) for one in kept.values()]
    return {"apiVersion": _GROUP, "kind": "WorkerStatus", "machineImages": listed}


def _of_entry(entry: Version, name: str, able: Known, definitions: Sequence[Capability]) -> UsedImage:
    """The image of the entry, or the one of its flavors that suits the machine best."""
    if not definitions:
        if not entry.image:
            raise Malformed(f"image {name!r} {entry.version!r} in machineImages has no container image")
        return UsedImage(name=name, version=entry.version, image=entry.image)
    flavors = [
        UsedImage(name=name, version=entry.version, image=flavor.image, capabilities=flavor.capabilities)
        for flavor in entry.capability_flavors or []
    ]
    fitting = [one for one in flavors if _fits(one, able, definitions)]
    if not fitting:
        raise Malformed("no compatible flavor found")
    # The CloudProfile lists capabilities, and the values of each, from the preferred to the last.
    for definition in definitions:
        for value in definition.values:
            if len(fitting) == 1:
                return fitting[0]
            preferred = [
                one
                for one in fitting
                if value in capabilities.defaulted(one.capabilities, definitions)[definition.name]
            ]
            fitting = preferred or fitting
    if len(fitting) > 1:
        raise Malformed(
            "could not determine a unique capability flavor; "
            "this is usually attributed to an invalid CloudProfile"
        )
    return fitting[0]


def _fits(image: UsedImage, able: Known, definitions: Sequence[Capability]) -> bool:
    known = capabilities.defaulted(image.capabilities, definitions)
    return not definitions or capabilities.fit(able, known)
