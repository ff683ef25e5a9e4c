"""The configs of API group gcp.provider.extensions.gardener.cloud, as users write them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from clouds.frame.decoding import Config, Int32, Int64, Struct, Text
from clouds.frame.featuregates import CloudControllerManager
from clouds.frame.quantities import Duration, NodeTemplate

_GROUP = "gcp.provider.extensions.gardener.cloud"


class CloudRouter(Struct):
    name: str = ""


class Vpc(Struct):
    name: str = ""
    cloud_router: CloudRouter | None = None


class EndpointIndependentMapping(Struct):
    enabled: bool = False


class NatIPName(Struct):
    name: str = ""


class CloudNat(Struct):
    endpoint_independent_mapping: EndpointIndependentMapping | None = None
    min_ports_per_vm: Int32 | None = Field(None, alias="minPortsPerVM")
    max_ports_per_vm: Int32 | None = Field(None, alias="maxPortsPerVM")
    enable_dynamic_port_allocation: bool = False
    nat_ip_names: list[NatIPName] | None = Field(None, alias="natIPNames")
    icmp_idle_timeout_sec: Int32 | None = None
    tcp_established_idle_timeout_sec: Int32 | None = None
    tcp_time_wait_timeout_sec: Int32 | None = None
    tcp_transitory_idle_timeout_sec: Int32 | None = None
    udp_idle_timeout_sec: Int32 | None = None


class FlowLogs(Struct):
    aggregation_interval: str | None = None
    flow_sampling: Annotated[float, Field(ge=-3.4028235677973366e38, le=3.4028235677973366e38)] | None = None
    metadata: str | None = None


class Networks(Struct):
    vpc: Vpc | None = None
    cloud_nat: CloudNat | None = Field(None, alias="cloudNAT")
    internal: str | None = None
    worker: str = ""
    """The former name of `workers`."""
    workers: str = ""
    flow_logs: FlowLogs | None = None


class InfrastructureConfig(Config):
    group = _GROUP

    networks: Networks = Networks()


class Storage(Struct):
    managed_default_storage_class: bool | None = None
    managed_default_volume_snapshot_class: bool | None = None


class ControlPlaneConfig(Config):
    group = _GROUP

    zone: str = ""
    cloud_controller_manager: CloudControllerManager | None = None
    storage: Storage | None = None


class Encryption(Struct):
    kms_key_name: str | None = None
    kms_key_service_account: str | None = None


class Volume(Struct):
    interface: str | None = None
    encryption: Encryption | None = None


class DataVolume(Struct):
    name: str = ""
    source_image: str | None = None
    provisioned_iops: Int64 | None = None
    provisioned_throughput: Int64 | None = None


class ServiceAccount(Struct):
    email: str = ""
    scopes: list[Text] = []


class Gpu(Struct):
    accelerator_type: str = ""
    count: Int32 = 0


class WorkerConfig(Config):
    group = _GROUP

    gpu: Gpu | None = None
    min_cpu_platform: str | None = None
    volume: Volume | None = None
    data_volumes: list[DataVolume] = []
    service_account: ServiceAccount | None = None
    node_template: NodeTemplate | None = None


class ImageVersion(Struct):
    version: str = ""
    image: str = ""
    architecture: str = "amd64"


class MachineImage(Struct):
    name: str = ""
    versions: list[ImageVersion] = []


class CloudProfileConfig(Config):
    group = _GROUP

    machine_images: list[MachineImage] = []


class Immutability(Struct):
    retention_type: str = ""
    retention_period: Duration = 0.0
    locked: bool = False


class BackupBucketConfig(Config):
    group = _GROUP

    immutability: Immutability | None = None
