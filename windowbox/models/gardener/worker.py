"""The Worker: the pools of machines of a Shoot."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import ConfigDict, Field

from windowbox.models.definitions import AGE, REGION, TYPE, Definition, state
from windowbox.models.extensions import (
    Bytes,
    ExtensionSpec,
    ExtensionStatus,
    Int32,
    Int64,
    IntOrString,
    Part,
    Quantities,
    Quantity,
    Raw,
    SecretReference,
    Strings,
)
from windowbox.models.gardener.cloudconfig import Strict
from windowbox.models.gardener.cloudprofile import Capabilities
from windowbox.models.machines import Taint
from windowbox.models.refs import WORKERS


class ClusterAutoscaler(Part):
    max_node_provision_time: str | None = None
    scale_down_gpu_utilization_threshold: str | None = None
    scale_down_unneeded_time: str | None = None
    scale_down_unready_time: str | None = None
    scale_down_utilization_threshold: str | None = None


class Volume(Part):
    encrypted: bool | None = None
    name: str | None = None
    size: str
    type: str | None = None


class DataVolume(Volume):
    name: str


class EvictionThresholds(Part):
    image_fs_available: str | None = Field(None, alias="imageFSAvailable")
    image_fs_inodes_free: str | None = Field(None, alias="imageFSInodesFree")
    memory_available: str | None = None
    node_fs_available: str | None = Field(None, alias="nodeFSAvailable")
    node_fs_inodes_free: str | None = Field(None, alias="nodeFSInodesFree")


class MinimumReclaim(Part):
    image_fs_available: Quantity | None = Field(None, alias="imageFSAvailable")
    image_fs_inodes_free: Quantity | None = Field(None, alias="imageFSInodesFree")
    memory_available: Quantity | None = None
    node_fs_available: Quantity | None = Field(None, alias="nodeFSAvailable")
    node_fs_inodes_free: Quantity | None = Field(None, alias="nodeFSInodesFree")


class KubeReserved(Part):
    cpu: Quantity | None = None
    ephemeral_storage: Quantity | None = None
    memory: Quantity | None = None
    pid: Quantity | None = None


class MemorySwap(Part):
    swap_behavior: str | None = None


class KubeletConfig(Part):
    container_log_max_files: Int32 | None = None
    container_log_max_size: Quantity | None = None
    cpu_cfs_quota: bool | None = Field(None, alias="cpuCFSQuota")
    cpu_manager_policy: str | None = None
    eviction_hard: EvictionThresholds | None = None
    eviction_max_pod_grace_period: Int32 | None = None
    eviction_minimum_reclaim: MinimumReclaim | None = None
    eviction_pressure_transition_period: str | None = None
    eviction_soft: EvictionThresholds | None = None
    eviction_soft_grace_period: EvictionThresholds | None = None
    fail_swap_on: bool | None = None
    feature_gates: dict[str, bool] | None = None
    image_gc_high_threshold_percent: Int32 | None = Field(None, alias="imageGCHighThresholdPercent")
    image_gc_low_threshold_percent: Int32 | None = Field(None, alias="imageGCLowThresholdPercent")
    image_maximum_gc_age: str | None = Field(None, alias="imageMaximumGCAge")
    image_minimum_gc_age: str | None = Field(None, alias="imageMinimumGCAge")
    image_pull_credentials_verification_policy: str | None = None
    kube_reserved: KubeReserved | None = None
    max_parallel_image_pulls: Int32 | None = None
    max_pods: Int32 | None = None
    memory_swap: MemorySwap | None = None
    pod_pids_limit: Int64 | None = None
    preloaded_images_verification_allowlist: list[str] | None = None
    protect_kernel_defaults: bool | None = None
    registry_burst: Int32 | None = None
    registry_pull_qps: Int32 | None = Field(None, alias="registryPullQPS")
    seccomp_default: bool | None = None
    serialize_image_pulls: bool | None = None
    single_process_oom_kill: bool | None = Field(None, alias="singleProcessOOMKill")
    streaming_connection_idle_timeout: str | None = None


class MachineControllerManager(Part):
    """The settings that each machine of a pool gets in its spec."""

    auto_preserve_failed_machine_max: Int32 | None = None
    disable_health_timeout: bool | None = None
    in_place_update_timeout: str | None = None
    machine_creation_timeout: str | None = None
    machine_drain_timeout: str | None = None
    machine_health_timeout: str | None = None
    machine_preserve_timeout: str | None = None
    max_evict_retries: Int32 | None = None
    node_conditions: list[str] | None = None


class PoolImage(Part):
    name: str
    version: str


class PoolNodeTemplate(Part):
    capacity: Quantities
    virtual_capacity: Quantities | None = None


class UserDataReference(Part):
    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})

    key: str
    name: str = ""
    optional: bool | None = None


class WorkerPool(Part):
    """Machines with the same type, image and settings."""

    annotations: Strings | None = None
    architecture: str | None = None
    cluster_autoscaler: ClusterAutoscaler | None = None
    data_volumes: list[DataVolume] | None = None
    kubelet_config: KubeletConfig | None = None
    kubelet_data_volume_name: str | None = None
    kubernetes_version: str | None = None
    labels: Strings | None = None
    machine_controller_manager: MachineControllerManager | None = None
    machine_image: PoolImage | None = None
    machine_type: str
    max_surge: IntOrString
    max_unavailable: IntOrString
    maximum: Int32
    minimum: Int32
    name: str
    node_agent_secret_name: str | None = None
    """Ends in a hash of the settings whose change replaces the nodes of the pool."""
    node_template: PoolNodeTemplate | None = None
    priority: Int32 | None = None
    provider_config: Raw | None = None
    taints: list[Taint] | None = None
    update_strategy: str | None = None
    """AutoRollingUpdate, which is the default, AutoInPlaceUpdate or ManualInPlaceUpdate."""
    user_data_secret_ref: UserDataReference
    volume: Volume | None = None
    zones: list[str] | None = None


class WorkerSpec(ExtensionSpec):
    infrastructure_provider_status: Raw | None = None
    pools: list[WorkerPool]
    region: str
    secret_ref: SecretReference
    """The Secret with the kubeconfig of the cluster that the machines run in."""
    ssh_public_key: Bytes | None = None


class InPlaceUpdates(Part):
    worker_pool_to_hash_map: Strings | None = None


class PoolDeployment(Part):
    """One MachineDeployment, with the limits of the cluster autoscaler."""

    auto_preserve_failed_machine_max: Int32 | None = None
    maximum: Int32
    minimum: Int32
    name: str
    priority: Int32 | None = None


class WorkerStatus(ExtensionStatus):
    in_place_updates: InPlaceUpdates | None = None
    machine_deployments: list[PoolDeployment] | None = None
    machine_deployments_last_update_time: datetime | None = None


class UsedImage(Strict):
    """The container image of a machine image."""

    name: str
    version: str
    image: str
    capabilities: Capabilities | None = None


class ProviderStatus(Strict):
    """`status.providerStatus`: the images in use. They stay known after a CloudProfile has removed them."""

    api_version: Literal["local.provider.extensions.gardener.cloud/v1alpha1"]
    kind: Literal["WorkerStatus"]
    machine_images: list[UsedImage] | None = None


DEFINITIONS = (
    Definition(
        resource=WORKERS,
        description="The machines of a Shoot.",
        spec=WorkerSpec,
        status=WorkerStatus,
        columns=(TYPE, REGION, state("Status"), AGE),
    ),
)
