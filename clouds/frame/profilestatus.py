"""The config in the status of a NamespacedCloudProfile: that of its parent, with what the profile adds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clouds.frame.cloud import Json
from clouds.frame.decoding import Config, decode
from windowbox.models.objects import mapping, mappings

_SPEC, _STATUS = "spec.providerConfig", "status.cloudProfileSpec.providerConfig"


def merged(model: type[Config], profile: Mapping[str, Any]) -> Json | None:
    """The merged config; None if there is nothing to merge. Malformed if a config cannot be read."""
    spec, status = mapping(profile.get("spec")), mapping(profile.get("status"))
    added = spec.get("providerConfig")
    inherited = mapping(status.get("cloudProfileSpec")).get("providerConfig")
    is_current = mapping(profile.get("metadata")).get("generation") == status.get("observedGeneration")
    # Until both are equal, the status still belongs to an older spec.
    if not is_current or added is None or inherited is None:
        return None
    for path, given in ((_SPEC, added), (_STATUS, inherited)):
        decode(model, given, path, kind_optional=True)
    config, own = dict(inherited), mapping(added)
    if images := _images(config.get("machineImages"), own.get("machineImages")):
        config["machineImages"] = images
    types = [*mappings(own.get("machineTypes")), *mappings(config.get("machineTypes"))]
    if by_name := {one.get("name"): one for one in types}:
        config["machineTypes"] = [*by_name.values()]
    return config


def _images(inherited: object, added: object) -> list[Json]:
    """Versions of the profile replace those of its parent for the same architecture."""
    images = {one.get("name"): dict(one) for one in mappings(inherited)}
    for one in mappings(added):
        known = mappings(images.get(one.get("name"), {}).get("versions"))
        by_version = {_which(each): each for each in (*known, *mappings(one.get("versions")))}
        images[one.get("name")] = {**one, "versions": [*by_version.values()]}
    return [*images.values()]


def _which(version: Mapping[str, Any]) -> tuple[object, object]:
    return version.get("version"), version.get("architecture") or "amd64"
