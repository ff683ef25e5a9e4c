"""NamespacedCloudProfiles: what their providerConfig adds to that of their parent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from webhooks.admission.cloudprofiles import decoded, parsed
from webhooks.review import Context, Lookup
from webhooks.shapes import part
from windowbox.models.cloudprofile import (
    CloudProfileConfig,
    CloudProfileSpec,
    Flavor,
    Image,
    MachineImage,
    Version,
)
from windowbox.models.extensions import Part
from windowbox.models.fielderrors import forbidden, invalid, required
from windowbox.models.objects import Json, Object, mapping
from windowbox.models.refs import CLOUD_PROFILES

_KIND = CLOUD_PROFILES.kind
_CONFIG = "spec.providerConfig"
_IMAGES = f"{_CONFIG}.machineImages"
_IN_STATUS = "status.cloudProfileSpec.providerConfig"
_HEAD = {"apiVersion": "local.provider.extensions.gardener.cloud/v1alpha1", "kind": "CloudProfileConfig"}

Versions = dict[str, set[str]]
"""Of each image its versions."""


class _Spec(Part):
    """What a NamespacedCloudProfile adds."""

    machine_images: list[MachineImage] | None = None


def parent(profile: Object) -> Lookup | None:
    """The CloudProfile that this one extends, if it names one."""
    reference = mapping(profile.spec.get("parent"))
    name = reference.get("name")
    if reference.get("kind") != _KIND or not isinstance(name, str):
        return None
    return Lookup(CLOUD_PROFILES, "", name)


def errors(profile: Json, context: Context) -> list[str]:
    """What is wrong with the images that the profile adds to its parent's."""
    spec = part(profile, "spec")
    given = spec.get("providerConfig")
    config = decoded(_HEAD if given is None else given, _CONFIG)
    kind = part(spec, "parent").get("kind")
    if kind != _KIND:
        return [f"parent reference must be of kind CloudProfile (unsupported kind: {kind})"]
    of_parent = parsed(CloudProfileSpec, part(context.looked_up(), "spec"), "spec of the parent CloudProfile")
    added = _versions(parsed(_Spec, spec, "spec").machine_images)
    inherited, mapped = _versions(of_parent.machine_images), _versions(config.machine_images)
    return [*_unmapped(added, inherited, mapped), *_misplaced(config, added, inherited)]


def merged(profile: Json) -> dict[str, Any]:
    """The providerConfig for the status: the parent's, with what the profile adds or replaces."""
    spec = part(profile, "status", "cloudProfileSpec")
    inherited = decoded(spec.get("providerConfig"), _IN_STATUS)
    own = decoded(part(profile, "spec").get("providerConfig"), _CONFIG)
    with_capabilities = bool(spec.get("machineCapabilities"))
    images = {image.name: _by_version(image) for image in inherited.machine_images}
    for image in own.machine_images:
        converted = {name: _converted(one, with_capabilities) for name, one in _by_version(image).items()}
        images[image.name] = {**images.get(image.name, {}), **converted}
    balancer = inherited.load_balancer
    return {
        **_HEAD,
        "machineImages": [
            {"name": name, "versions": [_spelled(one) for one in versions.values()]}
            for name, versions in images.items()
        ],
        "loadBalancer": balancer and balancer.model_dump(by_alias=True, exclude_none=True),
    }


def _unmapped(added: Versions, inherited: Versions, mapped: Versions) -> Iterator[str]:
    """Images of the profile without a container image."""
    where = "is not defined in the NamespacedCloudProfile providerConfig"
    for name, versions in added.items():
        if name not in inherited and name not in mapped:
            yield required(_IMAGES, f"machine image {name} {where}")
            continue
        for version in sorted(versions - inherited.get(name, set()) - mapped.get(name, set())):
            yield required(_IMAGES, f"machine image version {name}@{version} {where}")


def _misplaced(config: CloudProfileConfig, added: Versions, inherited: Versions) -> Iterator[str]:
    """Container images for what the parent has, or for what the profile does not."""
    for i, image in enumerate(config.machine_images):
        known = added.get(image.name)
        if known is None:
            detail = (
                f"machine image {image.name} is not defined in the NamespacedCloudProfile .spec.machineImages"
            )
            yield required(f"{_IMAGES}[{i}]", detail)
        for k, version in enumerate(image.versions or []):
            path, what = f"{_IMAGES}[{i}].versions[{k}]", f"{image.name}@{version.version}"
            if version.version in inherited.get(image.name, set()):
                detail = f"machine image version {what} is already defined in the parent CloudProfile"
                yield forbidden(path, detail)
            if known is not None and version.version not in known:
                yield invalid(
                    path, what, "machine image version is not defined in the NamespacedCloudProfile"
                )


def _versions(images: Sequence[Image | MachineImage] | None) -> Versions:
    found: Versions = {}
    for image in images or []:
        found.setdefault(image.name, set()).update(one.version for one in image.versions or [])
    return found


def _by_version(image: Image) -> Mapping[str, Version]:
    return {version.version: version for version in image.versions or []}


def _converted(version: Version, with_capabilities: bool) -> Version:
    """The version in the format of the parent."""
    flavors = version.capability_flavors
    if with_capabilities and version.image and not flavors:
        return version.model_copy(update={"image": None, "capability_flavors": [Flavor(image=version.image)]})
    if not with_capabilities and flavors:
        return version.model_copy(update={"image": flavors[0].image, "capability_flavors": None})
    return version


def _spelled(version: Version) -> dict[str, Any]:
    # Gardener always writes the flavors, even if there are none.
    fields = version.model_dump(by_alias=True, exclude_none=True)
    return {**fields, "capabilityFlavors": fields.get("capabilityFlavors")}
