"""The configs of API group alicloud.provider.extensions.gardener.cloud, as users write them."""

from __future__ import annotations

from pydantic import Field

from clouds.frame.decoding import Config, Struct
from clouds.frame.featuregates import CloudControllerManager

_GROUP = "alicloud.provider.extensions.gardener.cloud"


class NatGateway(Struct):
    eip_allocation_id: str | None = Field(None, alias="eipAllocationID")


class Zone(Struct):
    name: str = ""
    worker: str = ""
    """The former name of `workers`."""
    workers: str = ""
    nat_gateway: NatGateway | None = None


class Vpc(Struct):
    id: str | None = None
    cidr: str | None = None
    gardener_managed_nat_gateway: bool | None = Field(None, alias="gardenerManagedNATGateway")


class Networks(Struct):
    vpc: Vpc = Vpc()
    zones: list[Zone] = []


class InfrastructureConfig(Config):
    group = _GROUP

    networks: Networks = Networks()


class Csi(Struct):
    enable_ad_controller: bool | None = Field(None, alias="enableADController")


class ControlPlaneConfig(Config):
    group = _GROUP

    csi: Csi | None = None
    cloud_controller_manager: CloudControllerManager | None = None


class RegionImage(Struct):
    name: str = ""
    id: str = ""


class ImageVersion(Struct):
    version: str = ""
    regions: list[RegionImage] = []


class MachineImage(Struct):
    name: str = ""
    versions: list[ImageVersion] = []


class CloudProfileConfig(Config):
    group = _GROUP

    machine_images: list[MachineImage] = []
