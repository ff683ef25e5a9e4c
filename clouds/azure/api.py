"""The configs of API group azure.provider.extensions.gardener.cloud, as users write them."""

from __future__ import annotations

from pydantic import Field

from clouds.frame.decoding import Config, Int32, Struct, Text
from clouds.frame.featuregates import CloudControllerManager
from clouds.frame.quantities import NodeTemplate

_GROUP = "azure.provider.extensions.gardener.cloud"


class ResourceGroup(Struct):
    name: str = ""


class VNet(Struct):
    name: str | None = None
    resource_group: str | None = None
    cidr: str | None = None
    ddos_protection_plan_id: str | None = Field(None, alias="ddosProtectionPlanID")

    @property
    def exists_already(self) -> bool:
        """Whether it belongs to the user."""
        return self.name is not None and self.resource_group is not None

    @property
    def is_default(self) -> bool:
        """Whether its range is that of the workers."""
        return self.name is None and self.resource_group is None and self.cidr is None


class ZonalPublicIP(Struct):
    name: str = ""
    resource_group: str = ""


class PublicIP(ZonalPublicIP):
    zone: Int32 = 0


class ZonalNatGateway(Struct):
    enabled: bool = False
    idle_connection_timeout_minutes: Int32 | None = None
    ip_addresses: list[ZonalPublicIP] | None = None


class NatGateway(Struct):
    enabled: bool = False
    idle_connection_timeout_minutes: Int32 | None = None
    zone: Int32 | None = None
    ip_addresses: list[PublicIP] | None = None


class Zone(Struct):
    name: Int32 = 0
    cidr: str = ""
    service_endpoints: list[Text] | None = None
    nat_gateway: ZonalNatGateway | None = None


class Networks(Struct):
    vnet: VNet = VNet()
    workers: str | None = None
    nat_gateway: NatGateway | None = None
    service_endpoints: list[Text] | None = None
    zones: list[Zone] | None = None


class Identity(Struct):
    name: str = ""
    resource_group: str = ""
    acr_access: bool | None = None


class InfrastructureConfig(Config):
    group = _GROUP

    resource_group: ResourceGroup | None = None
    networks: Networks = Networks()
    identity: Identity | None = None
    zoned: bool = False

    @property
    def zones(self) -> list[Zone]:
        """The zones with a subnet each; empty if all share one."""
        return self.networks.zones or []


class Storage(Struct):
    managed_default_storage_class: bool | None = None
    managed_default_volume_snapshot_class: bool | None = None


class ControlPlaneConfig(Config):
    group = _GROUP

    cloud_controller_manager: CloudControllerManager | None = None
    storage: Storage | None = None


class Image(Struct):
    """Where an image is: one of these."""

    urn: str | None = None
    id: str | None = None
    community_gallery_image_id: str | None = Field(None, alias="communityGalleryImageID")
    shared_gallery_image_id: str | None = Field(None, alias="sharedGalleryImageID")


class DiagnosticsProfile(Struct):
    enabled: bool = False
    storage_uri: str | None = Field(None, alias="storageURI")


class DataVolume(Struct):
    name: str = ""
    image_ref: Image | None = None


class WorkerConfig(Config):
    group = _GROUP

    node_template: NodeTemplate | None = None
    diagnostics_profile: DiagnosticsProfile | None = None
    data_volumes: list[DataVolume] = Field([])


class DomainCount(Struct):
    region: str = ""
    count: Int32 = 0


class ImageVersion(Image):
    version: str = ""
    skip_marketplace_agreement: bool | None = None
    accelerated_networking: bool | None = None
    architecture: str = "amd64"


class MachineImage(Struct):
    name: str = ""
    versions: list[ImageVersion] = Field([])


class MachineType(Struct):
    name: str = ""
    accelerated_networking: bool | None = None


class CloudConfiguration(Struct):
    name: str = ""


class CloudProfileConfig(Config):
    group = _GROUP

    count_update_domains: list[DomainCount] = Field([])
    count_fault_domains: list[DomainCount] = Field([])
    machine_images: list[MachineImage] = Field([])
    machine_types: list[MachineType] = Field([])
    cloud_configuration: CloudConfiguration | None = None
