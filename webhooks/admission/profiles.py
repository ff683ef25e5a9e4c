"""CloudProfiles and NamespacedCloudProfiles: each machine image has a container image."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from webhooks.review import Context, Denied, Lookup, Undecodable, about
from webhooks.shapes import part, text
from windowbox.errors import Malformed
from windowbox.models.extensions import Part
from windowbox.models.fielderrors import first, forbidden, invalid, required
from windowbox.models.gardener import cloudprofile, cloudprofilechecks
from windowbox.models.gardener.cloudprofile import (
    CloudProfileConfig,
    CloudProfileSpec,
    Flavor,
    MachineImage,
    Version,
)
from windowbox.models.gardener.cloudprofilechecks import Versions
from windowbox.models.objects import Json
from windowbox.models.refs import CLOUD_PROFILES

_T = TypeVar("_T", bound=BaseModel)

_LARGEST = 100_000
"""Values in the spec of a profile."""
_KIND = CLOUD_PROFILES.kind
_CONFIG = "spec.providerConfig"
_IMAGES = f"{_CONFIG}.machineImages"
_IN_STATUS = "status.cloudProfileSpec.providerConfig"
_HEAD = {"apiVersion": "local.provider.extensions.gardener.cloud/v1alpha1", "kind": "CloudProfileConfig"}


class _Spec(Part):
    """The additions of a NamespacedCloudProfile."""

    machine_images: list[MachineImage] | None = None


def cloud_profile_errors(profile: Json) -> list[str]:
    """The errors of the providerConfig of a CloudProfile."""
    spec = _parsed(CloudProfileSpec, part(profile, "spec"), "spec")
    if spec.provider_config is None:
        detail = "providerConfig must be set for cloud profiles of provider local"
        return [required(cloudprofilechecks.CONFIG, detail)]
    return cloudprofilechecks.errors(_decoded(spec.provider_config, cloudprofilechecks.CONFIG), spec)


def namespaced_profile_errors(profile: Json, context: Context) -> list[str]:
    """The errors of the images that a NamespacedCloudProfile adds to those of its parent."""
    spec = part(profile, "spec")
    given = spec.get("providerConfig")
    config = _decoded(_HEAD if given is None else given, _CONFIG)
    parent = part(spec, "parent")
    kind = parent.get("kind")
    if kind != _KIND:
        return [f"parent reference must be of kind CloudProfile (unsupported kind: {kind})"]
    found = context.looked_up(Lookup(CLOUD_PROFILES, "", text(parent, "name")))
    with about("the parent CloudProfile"):
        inherited = Versions(_parsed(CloudProfileSpec, part(found, "spec"), "spec").machine_images)
    added = Versions(_parsed(_Spec, spec, "spec").machine_images)
    return first(_image_errors(config, added, inherited))


def _image_errors(config: CloudProfileConfig, added: Versions, inherited: Versions) -> Iterator[str]:
    where = "is not defined in the NamespacedCloudProfile providerConfig"
    mapped = Versions(config.machine_images)
    for name, versions in added.of.items():
        if name not in inherited.of and name not in mapped.of:
            yield required(_IMAGES, f"machine image {name} {where}")
            continue
        for version in sorted(versions - inherited.of.get(name, set()) - mapped.of.get(name, set())):
            detail = f"machine image version {name}@{version} {where}"
            yield required(_IMAGES, detail + mapped.remedy(name, version))
    # The other way round: container images that the profile has no use for.
    for i, image in enumerate(config.machine_images):
        known = added.of.get(image.name)
        if known is None:
            where = "is not defined in the NamespacedCloudProfile .spec.machineImages"
            yield required(f"{_IMAGES}[{i}]", f"machine image {image.name} {where}")
        for k, mapping_ in enumerate(image.versions or []):
            version = mapping_.version
            path, what = f"{_IMAGES}[{i}].versions[{k}]", f"{image.name}@{version}"
            if version in inherited.of.get(image.name, set()):
                detail = f"machine image version {what} is already defined in the parent CloudProfile"
                yield forbidden(path, detail)
            if known is not None and version not in known:
                detail = "machine image version is not defined in the NamespacedCloudProfile"
                yield invalid(path, what, detail + added.remedy(image.name, version))


def merged(profile: Json) -> dict[str, Any]:
    """The providerConfig for the status: the parent's, with the images that the profile adds or replaces."""
    spec = part(profile, "status", "cloudProfileSpec")
    inherited = _decoded(spec.get("providerConfig"), _IN_STATUS)
    own = _decoded(part(profile, "spec").get("providerConfig"), _CONFIG)
    with_capabilities = bool(spec.get("machineCapabilities"))
    images = {image.name: image.versions for image in inherited.machine_images}
    for name, added in {image.name: image.versions for image in own.machine_images}.items():
        converted = (_converted(one, with_capabilities) for one in added or [])
        images[name] = [*(images.get(name) or []), *converted]
    return {
        **_HEAD,
        "machineImages": [
            {"name": name, "versions": None if versions is None else _spelled(versions)}
            for name, versions in images.items()
        ],
        # Gardener writes fields even where they are empty, but for the image of a version.
        "loadBalancer": {"image": (inherited.load_balancer and inherited.load_balancer.image) or ""},
    }


def _converted(version: Version, with_capabilities: bool) -> Version:
    """The version in the format of the parent."""
    flavors = version.capability_flavors
    if with_capabilities and not flavors:
        flavors = [Flavor(image=version.image or "")]
        return version.model_copy(update={"image": None, "capability_flavors": flavors})
    if not with_capabilities and flavors:
        return version.model_copy(update={"image": flavors[0].image, "capability_flavors": None})
    return version


def _spelled(versions: list[Version]) -> list[dict[str, Any]]:
    """Each version once: the last one counts."""
    by_version = {one.version: one for one in versions}
    return [
        {
            "version": name,
            **({"image": one.image} if one.image else {}),
            "capabilityFlavors": one.capability_flavors
            and [
                {"image": each.image} | ({"capabilities": each.capabilities} if each.capabilities else {})
                for each in one.capability_flavors
            ],
        }
        for name, one in by_version.items()
    ]


def _decoded(content: object, path: str) -> CloudProfileConfig:
    """A providerConfig. Unknown fields deny the request."""
    try:
        return cloudprofile.decoded(content, f"could not decode {path}")
    except Malformed as error:
        raise Denied(str(error)) from error


def _parsed(model: type[_T], content: object, what: str) -> _T:
    """A part of an object as a model; Undecodable if it has other types."""
    try:
        cloudprofile.require_small(content, what, _LARGEST)
        return model.model_validate(content)
    except Malformed as error:
        raise Undecodable(str(error)) from error
    except ValidationError as error:
        raise Undecodable(f"{what}: {cloudprofile.listed(error)}") from error
