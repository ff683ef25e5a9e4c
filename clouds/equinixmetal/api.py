"""The configs of API group equinixmetal.provider.extensions.gardener.cloud, as users write them."""

from __future__ import annotations

from pydantic import Field

from clouds.frame.decoding import Config, Struct, Text

_GROUP = "equinixmetal.provider.extensions.gardener.cloud"


class ControlPlaneConfig(Config):
    group = _GROUP


class WorkerConfig(Config):
    group = _GROUP

    reservation_ids: list[Text] = Field([], alias="reservationIDs")
    reserved_devices_only: bool | None = None


class ImageVersion(Struct):
    version: str = ""
    id: str = ""
    ipxe_script_url: str | None = None


class MachineImage(Struct):
    name: str = ""
    versions: list[ImageVersion] = []


class CloudProfileConfig(Config):
    group = _GROUP

    machine_images: list[MachineImage] = []
