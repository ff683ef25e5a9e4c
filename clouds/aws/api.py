"""The configs of API group aws.provider.extensions.gardener.cloud, as users write them."""

from __future__ import annotations

from pydantic import Field

from clouds.frame import featuregates
from clouds.frame.decoding import Config, Int64, Struct, Text
from clouds.frame.quantities import NodeTemplate

_GROUP = "aws.provider.extensions.gardener.cloud"


class Zone(Struct):
    name: str = ""
    internal: str = ""
    public: str = ""
    workers: str = ""
    elastic_ip_allocation_id: str | None = Field(None, alias="elasticIPAllocationID")


class Vpc(Struct):
    id: str | None = None
    cidr: str | None = None
    gateway_endpoints: list[Text] = []


class Networks(Struct):
    vpc: Vpc = Vpc()
    zones: list[Zone] = []


class DualStack(Struct):
    enabled: bool = False


class IgnoreTags(Struct):
    keys: list[Text] = []
    key_prefixes: list[Text] = []


class InfrastructureConfig(Config):
    group = _GROUP

    enable_ecr_access: bool | None = Field(None, alias="enableECRAccess")
    dual_stack: DualStack | None = None
    networks: Networks = Networks()
    ignore_tags: IgnoreTags | None = None


class CloudControllerManager(featuregates.CloudControllerManager):
    use_custom_route_controller: bool | None = None


class LoadBalancerController(Struct):
    enabled: bool = False
    ingress_class_name: str | None = None


class Storage(Struct):
    managed_default_class: bool | None = None


class ControlPlaneConfig(Config):
    group = _GROUP

    cloud_controller_manager: CloudControllerManager | None = None
    load_balancer_controller: LoadBalancerController | None = None
    storage: Storage | None = None


class VolumeConfig(Struct):
    iops: Int64 | None = None
    throughput: Int64 | None = None


class DataVolumeConfig(VolumeConfig):
    name: str = ""
    snapshot_id: str | None = Field(None, alias="snapshotID")


class InstanceProfile(Struct):
    name: str | None = None
    arn: str | None = None


class MetadataOptions(Struct):
    http_tokens: str | None = None
    http_put_response_hop_limit: Int64 | None = None


class CpuOptions(Struct):
    core_count: Int64 | None = None
    threads_per_core: Int64 | None = None


class WorkerConfig(Config):
    group = _GROUP

    node_template: NodeTemplate | None = None
    volume: VolumeConfig | None = None
    data_volumes: list[DataVolumeConfig] = []
    iam_instance_profile: InstanceProfile | None = Field(None, alias="iamInstanceProfile")
    instance_metadata_options: MetadataOptions | None = None
    cpu_options: CpuOptions | None = None


class RegionImage(Struct):
    name: str = ""
    ami: str = ""
    architecture: str = "amd64"


class ImageVersion(Struct):
    version: str = ""
    regions: list[RegionImage] = []


class MachineImage(Struct):
    name: str = ""
    versions: list[ImageVersion] = []


class CloudProfileConfig(Config):
    group = _GROUP

    machine_images: list[MachineImage] = []
