"""The images that an Infrastructure of type alicloud prepares for the pools of its Shoot."""

from __future__ import annotations

from clouds.alicloud import profile
from clouds.alicloud.api import CloudProfileConfig
from clouds.frame import inventory
from clouds.frame.decoding import decode
from clouds.frame.gardenobjects import Image
from clouds.frame.infrastructure import Json, Site
from windowbox.errors import Malformed
from windowbox.models.objects import mappings

_WHERE = "spec.providerConfig of the CloudProfile"


def of_pools(site: Site) -> list[Json]:
    """The images as the status lists them, each once. Malformed if there is none for a pool.

    Those that the status had stay, also after their version has left the CloudProfile (ALL-Z6).
    """
    if not site.pools:
        return []
    config = decode(CloudProfileConfig, site.profile.provider_config, _WHERE, kind_optional=True)
    found: dict[tuple[str, str, bool], Json] = {}
    for pool in site.pools:
        image = pool.machine.image or Image()
        is_encrypted = bool(pool.volume and pool.volume.encrypted)
        key = (image.name, image.version, is_encrypted)
        if key not in found:
            plain = profile.image_id(config, image.name, image.version, site.region)
            id_ = _encrypted(site, image, plain) if is_encrypted else plain or _before(site, image, False)
            if id_ is None:
                raise Malformed(
                    f"machine.image of pool {pool.name!r:.80}: could not find machine image for "
                    f"{image.name}/{image.version} in region {site.region}: add it to the CloudProfile"
                )
            found[key] = {
                "name": image.name,
                "version": image.version,
                "id": id_,
                "encrypted": is_encrypted,
            }
    return list(found.values())


def _encrypted(site: Site, image: Image, plain: str | None) -> str | None:
    """ALI-W4: the encrypted copy of an image, which belongs to the account."""
    if (found := _before(site, image, True)) is not None:
        return found
    if (source := plain or _before(site, image, False)) is None:
        return None
    if not profile.is_customers(source):
        raise Malformed(
            f"image ({image.name}-{image.version}/{source}) is owned by AliCloud. An encrypted image can't "
            "be created from this image for the shoot: use another, or set volume.encrypted to false"
        )
    return inventory.made_id("m-", site.account, site.region, source, digits=20)


def _before(site: Site, image: Image, encrypted: bool) -> str | None:
    for one in mappings(site.status.get("machineImages")):
        same = (one.get("name"), one.get("version")) == (image.name, image.version)
        if same and bool(one.get("encrypted")) == encrypted and isinstance(one.get("id"), str):
            return str(one["id"])
    return None
