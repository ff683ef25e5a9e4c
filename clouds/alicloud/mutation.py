"""What the mutator of alicloud changes in a Shoot."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from clouds.alicloud import profile
from clouds.alicloud.api import CloudProfileConfig, ControlPlaneConfig
from clouds.frame import admission, networkconfig
from clouds.frame.cloud import Json, Lookup, profile_of
from clouds.frame.decoding import decode, decode_shared, spelled
from clouds.frame.gardenobjects import shoot as read
from windowbox.errors import Malformed

_CONTROL_PLANE = "spec.provider.controlPlaneConfig"
_TASKS = "shoot.gardener.cloud/tasks"
_TASK = "deployInfrastructure"


def mutate(shoot: Json, old: Mapping[str, Any] | None, find: Lookup) -> None:
    networking = shoot["spec"]["networking"]
    if networking.get("type") is not None and not networkconfig.is_left_alone(shoot, old):  # ALI-M3
        networking["providerConfig"] = config = networkconfig.overlay(shoot, old)
        if networking["type"] == "calico" and networkconfig.is_off(config):
            config["snatToUpstreamDNS"] = {"enabled": False}
    if old is None:
        _enable_ad_controller(shoot["spec"]["provider"])
        images = _Images(shoot, find)
        for worker in shoot["spec"]["provider"]["workers"]:
            _encrypt(worker, images)
    elif shoot["spec"] != old["spec"]:
        _keep_ad_controller(shoot["spec"]["provider"], old["spec"]["provider"])
        _keep_encryption(shoot, old, find)
        if _needs_encrypted_image(shoot, old):  # ALI-W5
            annotations = shoot.setdefault("metadata", {}).setdefault("annotations", {})
            tasks = [one for one in annotations.get(_TASKS, "").split(",") if one]
            annotations[_TASKS] = ",".join(dict.fromkeys([*tasks, _TASK]))


def _enable_ad_controller(provider: Json) -> None:
    """ALI-M1: on for new Shoots, where they do not say otherwise."""
    config = _control_plane(provider)
    csi = config.setdefault("csi", {})
    csi.setdefault("enableADController", True)
    provider["controlPlaneConfig"] = config


def _keep_ad_controller(provider: Json, old: Mapping[str, Any]) -> None:
    stored = _control_plane(old).get("csi")
    config = _control_plane(provider)
    if stored is not None and config.get("csi", {}).get("enableADController") is None:
        config["csi"] = {**config.get("csi", {}), **stored}
        provider["controlPlaneConfig"] = config


def _control_plane(provider: Mapping[str, Any]) -> Json:
    given = provider.get("controlPlaneConfig")
    if given is None:
        return {"apiVersion": f"{ControlPlaneConfig.group}/v1alpha1", "kind": "ControlPlaneConfig"}
    return spelled(decode(ControlPlaneConfig, given, _CONTROL_PLANE, kind_optional=True))


class _Images:
    """The images of a Shoot's CloudProfile, which is read once and only if a disk depends on it."""

    def __init__(self, shoot: Json, find: Lookup) -> None:
        self._shoot = shoot
        self._find = find

    def is_customers(self, image: Mapping[str, Any]) -> bool:
        """Whether the image belongs to the customer. Malformed if the profile does not have it."""
        name, version = image.get("name", ""), image["version"]
        region = self._shoot["spec"].get("region") or ""
        found = profile.image_id(self._config, name, version, region)
        if found is None:
            detail = f"is no image of the CloudProfile in region {region}: add it to its providerConfig"
            raise Malformed(f"machine.image {name}@{version} {detail}")
        return self._has_credentials and profile.is_customers(found)

    @cached_property
    def _config(self) -> CloudProfileConfig:
        given = profile_of(read(self._shoot), self._find).provider_config
        what = "spec.providerConfig of the CloudProfile"
        return decode_shared(CloudProfileConfig, given, what, kind_optional=True)

    @cached_property
    def _has_credentials(self) -> bool:
        """The extension asks the cloud, with the credentials of the Shoot. Malformed if there are none."""
        admission.credentials(read(self._shoot), self._find)
        return True


def _encrypt(worker: Json, images: _Images) -> None:
    """ALI-M2: data volumes, and the system disk if its image belongs to the customer."""
    image = worker.get("machine", {}).get("image", {})
    if "version" not in image:
        pool = worker.get("name")
        raise Malformed(f"machine.image of pool {pool!r:.99} is missing: give its name and version")
    for volume in worker.get("dataVolumes", []):
        volume.setdefault("encrypted", True)
    volume = worker.get("volume")
    if volume is not None and "encrypted" not in volume and images.is_customers(image):
        volume["encrypted"] = True


def _keep_encryption(shoot: Json, old: Mapping[str, Any], find: Lookup) -> None:
    """ALI-M2: a missing value keeps the old one."""
    stored = {one.get("name"): one for one in reversed(old["spec"]["provider"].get("workers", []))}
    images = _Images(shoot, find)
    for worker in shoot["spec"]["provider"]["workers"]:
        before = stored.get(worker.get("name"))
        if before is None:
            _encrypt(worker, images)
            continue
        _keep(worker.get("volume"), before.get("volume"))
        volumes = {one.get("name"): one for one in reversed(before.get("dataVolumes", []))}
        for volume in worker.get("dataVolumes", []):
            _keep(volume, volumes.get(volume.get("name"), {"encrypted": True}))


def _keep(volume: Json | None, stored: Mapping[str, Any] | None) -> None:
    if volume is not None and stored and "encrypted" in stored:
        volume.setdefault("encrypted", stored["encrypted"])


def _needs_encrypted_image(shoot: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """Whether a system disk is encrypted whose image and version none was encrypted with before."""
    return bool(_encrypted_images(shoot) - _encrypted_images(old))


def _encrypted_images(shoot: Mapping[str, Any]) -> set[tuple[Any, Any]]:
    return {
        (image.get("name"), image.get("version"))
        for one in shoot["spec"]["provider"].get("workers", [])
        if one.get("volume", {}).get("encrypted") and (image := one.get("machine", {}).get("image"))
    }
