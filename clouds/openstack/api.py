"""The configs of API group openstack.provider.extensions.gardener.cloud, as users write them."""

from __future__ import annotations

from pydantic import Field

from clouds.frame.decoding import Config, Int32, Struct, Text
from clouds.frame.featuregates import CloudControllerManager
from clouds.frame.quantities import Duration, NodeTemplate

_GROUP = "openstack.provider.extensions.gardener.cloud"


class Router(Struct):
    id: str = ""


class ShareNetwork(Struct):
    enabled: bool = False


class Networks(Struct):
    id: str | None = None
    router: Router | None = None
    worker: str = ""
    """The former name of `workers`."""
    workers: str = ""
    share_network: ShareNetwork | None = None

    @property
    def is_shared(self) -> bool:
        return self.share_network is not None and self.share_network.enabled


class InfrastructureConfig(Config):
    group = _GROUP

    floating_pool_name: str = ""
    floating_pool_subnet_name: str | None = None
    networks: Networks = Networks()


class LoadBalancerClass(Struct):
    name: str = ""
    purpose: str | None = None
    floating_subnet_id: str | None = Field(None, alias="floatingSubnetID")
    floating_subnet_tags: str | None = None
    floating_subnet_name: str | None = None
    floating_network_id: str | None = Field(None, alias="floatingNetworkID")
    subnet_id: str | None = Field(None, alias="subnetID")


class CsiManila(Struct):
    enabled: bool = False


class Storage(Struct):
    csi_manila: CsiManila | None = None


class ControlPlaneConfig(Config):
    group = _GROUP

    cloud_controller_manager: CloudControllerManager | None = None
    load_balancer_classes: list[LoadBalancerClass] = []
    load_balancer_provider: str = ""
    zone: str | None = None
    storage: Storage | None = None


class ServerGroup(Struct):
    policy: str = ""


class MachineLabel(Struct):
    name: str = ""
    value: str = ""
    trigger_rolling_on_update: bool = False


class WorkerConfig(Config):
    group = _GROUP

    server_group: ServerGroup | None = None
    machine_labels: list[MachineLabel] = []
    node_template: NodeTemplate | None = None


class FloatingPool(Struct):
    name: str = ""
    region: str | None = None
    domain: str | None = None
    default_floating_subnet: str | None = None
    non_constraining: bool | None = None
    load_balancer_classes: list[LoadBalancerClass] = []


class LoadBalancerProvider(Struct):
    name: str = ""
    region: str | None = None


class Constraints(Struct):
    floating_pools: list[FloatingPool] = []
    load_balancer_providers: list[LoadBalancerProvider] = []


class KeystoneUrl(Struct):
    region: str = ""
    url: str = ""
    ca_cert: str | None = None


class RegionImage(Struct):
    name: str = ""
    id: str = ""
    architecture: str = "amd64"


class ImageVersion(Struct):
    version: str = ""
    image: str = ""
    regions: list[RegionImage] = []


class MachineImage(Struct):
    name: str = ""
    versions: list[ImageVersion] = []


class StorageClass(Struct):
    name: str = ""
    default: bool | None = None
    provisioner: str | None = None
    parameters: dict[str, Text] = {}
    annotations: dict[str, Text] = {}
    labels: dict[str, Text] = {}
    reclaim_policy: str | None = None
    volume_binding_mode: str | None = None


class CloudProfileConfig(Config):
    group = _GROUP

    constraints: Constraints = Constraints()
    dns_servers: list[Text] = []
    dhcp_domain: str | None = None
    keystone_url: str = Field("", alias="keystoneURL")
    keystone_ca_cert: str | None = Field(None, alias="keystoneCACert")
    keystone_force_insecure: bool = False
    keystone_urls: list[KeystoneUrl] = Field([], alias="keystoneURLs")
    machine_images: list[MachineImage] = []
    request_timeout: Duration | None = None
    rescan_block_storage_on_resize: bool | None = None
    ignore_volume_az: bool | None = Field(None, alias="ignoreVolumeAZ")
    node_volume_attach_limit: Int32 | None = None
    use_octavia: bool | None = None
    use_snat: bool | None = Field(None, alias="useSNAT")
    server_group_policies: list[Text] = []
    resolv_conf_options: list[Text] = []
    storage_classes: list[StorageClass] = []
