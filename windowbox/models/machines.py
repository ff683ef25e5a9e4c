"""Machines: the class they are made by, single ones, sets of equal ones, and deployments, which roll them."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import ConfigDict, Field

from windowbox.models.definitions import AGE, Column, Definition
from windowbox.models.extensions import (
    ATOMIC,
    Int32,
    Int64,
    IntOrString,
    Part,
    Quantities,
    Raw,
    SecretReference,
    Strings,
)
from windowbox.models.refs import MACHINE_CLASSES, MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES


class Phase(StrEnum):
    """What a Machine is at."""

    NEW = ""
    PENDING = "Pending"
    AVAILABLE = "Available"
    """Made, where there is no shoot to join."""
    RUNNING = "Running"
    """Its node has joined and is healthy."""
    TERMINATING = "Terminating"
    UNKNOWN = "Unknown"
    """Its node is unhealthy, or missing."""
    FAILED = "Failed"
    CRASH_LOOP_BACK_OFF = "CrashLoopBackOff"
    """It could not be made, and is tried again."""
    IN_PLACE_UPDATING = "InPlaceUpdating"
    IN_PLACE_UPDATE_SUCCESSFUL = "InPlaceUpdateSuccessful"
    IN_PLACE_UPDATE_FAILED = "InPlaceUpdateFailed"


class OperationType(StrEnum):
    CREATE = "Create"
    UPDATE = "Update"
    IN_PLACE_UPDATE = "InPlaceUpdate"
    DRAIN_NODE = "DrainNode"
    HEALTH_CHECK = "HealthCheck"
    DELETE = "Delete"


class OperationState(StrEnum):
    PROCESSING = "Processing"
    FAILED = "Failed"
    SUCCESSFUL = "Successful"


class StrategyType(StrEnum):
    """How machines of an old template make way for those of a new one."""

    ROLLING_UPDATE = "RollingUpdate"
    RECREATE = "Recreate"
    IN_PLACE_UPDATE = "InPlaceUpdate"


class ClassReference(Part):
    api_group: str | None = None
    kind: str | None = None
    name: str | None = None


class ClassNodeTemplate(Part):
    """What a node of this class has, for the cluster autoscaler."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})

    architecture: str | None = None
    capacity: Quantities
    instance_type: str
    region: str
    virtual_capacity: Quantities | None = None
    zone: str


class MachineClass(Part):
    """All its fields stand beside `metadata`."""

    credentials_secret_ref: SecretReference | None = None
    """The Secret with the kubeconfig of the cluster that machine Pods run in."""
    node_template: ClassNodeTemplate | None = None
    provider: str | None = None
    """The provider that creates the machines. windowbox serves `local`."""
    provider_spec: Raw
    secret_ref: SecretReference | None = None
    """The Secret with the user data."""


class Taint(Part):
    effect: str
    key: str
    time_added: datetime | None = None
    value: str | None = None


class NodeConfigMap(Part):
    kubelet_config_key: str
    name: str
    namespace: str
    resource_version: str | None = None
    uid: str | None = None


class NodeConfigSource(Part):
    config_map: NodeConfigMap | None = None


class NodeSpec(Part):
    config_source: NodeConfigSource | None = None
    external_id: str | None = Field(None, alias="externalID")
    pod_cidr: str | None = Field(None, alias="podCIDR")
    pod_cidrs: list[str] | None = Field(
        None, alias="podCIDRs", json_schema_extra={"x-kubernetes-list-type": "set"}
    )
    provider_id: str | None = Field(None, alias="providerID")
    taints: list[Taint] | None = Field(None, json_schema_extra=ATOMIC)
    unschedulable: bool | None = None


class NodeTemplate(Part):
    """What the node of a Machine is to have."""

    metadata: Raw | None = None
    """Labels and annotations."""
    spec: NodeSpec | None = None


class MachineSpec(Part):
    class_: ClassReference | None = Field(None, alias="class")
    creation_timeout: str | None = None
    disable_health_timeout: bool | None = None
    drain_timeout: str | None = None
    health_timeout: str | None = None
    in_place_update_timeout: str | None = None
    machine_preserve_timeout: str | None = None
    max_evict_retries: Int32 | None = None
    node_conditions: str | None = None
    """Conditions of the node that make the Machine unhealthy, separated by commas."""
    node_template: NodeTemplate | None = None
    provider_id: str | None = Field(None, alias="providerID")


class NodeAddress(Part):
    address: str
    type: str


class NodeCondition(Part):
    last_heartbeat_time: datetime | None = None
    last_transition_time: datetime | None = None
    message: str | None = None
    reason: str | None = None
    status: str
    type: str


class CurrentStatus(Part):
    last_update_time: datetime | None = None
    phase: str | None = None
    preserve_expiry_time: datetime | None = None
    timeout_active: bool | None = None


class MachineOperation(Part):
    description: str | None = None
    error_code: str | None = None
    last_update_time: datetime | None = None
    state: str | None = None
    type: str | None = None


class MachineStatus(Part):
    addresses: list[NodeAddress] | None = None
    """Only of machines that join no shoot."""
    conditions: list[NodeCondition] | None = None
    """Those of the node."""
    current_status: CurrentStatus | None = None
    last_known_state: str | None = None
    last_operation: MachineOperation | None = None


class MachineTemplate(Part):
    metadata: Raw | None = None
    spec: MachineSpec | None = None


class LabelRequirement(Part):
    key: str
    operator: str
    values: list[str] | None = Field(None, json_schema_extra=ATOMIC)


class LabelSelector(Part):
    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})

    match_expressions: list[LabelRequirement] | None = Field(None, json_schema_extra=ATOMIC)
    match_labels: Strings | None = None


class FailedMachine(Part):
    last_operation: MachineOperation | None = None
    name: str | None = None
    owner_ref: str | None = None
    provider_id: str | None = Field(None, alias="providerID")


class MachineSetSpec(Part):
    auto_preserve_failed_machine_max: Int32 | None = None
    machine_class: ClassReference | None = None
    min_ready_seconds: Int32 | None = None
    replicas: Int32 | None = None
    selector: LabelSelector | None = None
    template: MachineTemplate | None = None


class MachineSetCondition(Part):
    last_transition_time: datetime | None = None
    message: str | None = None
    reason: str | None = None
    status: str
    type: str


class MachineSetStatus(Part):
    auto_preserve_failed_machine_count: Int32 | None = None
    available_replicas: Int32 | None = None
    failed_machines: list[FailedMachine] | None = None
    fully_labeled_replicas: Int32 | None = None
    last_operation: MachineOperation | None = None
    machine_set_condition: list[MachineSetCondition] | None = None
    observed_generation: Int64 | None = None
    preserved_failed_replicas: Int32 | None = None
    ready_replicas: Int32 | None = None
    replicas: Int32 | None = None


class RollingUpdate(Part):
    max_surge: IntOrString | None = None
    max_unavailable: IntOrString | None = None


class InPlaceUpdate(RollingUpdate):
    orchestration_type: str | None = None
    """Auto, or Manual: then a person chooses the nodes."""


class Strategy(Part):
    in_place_update: InPlaceUpdate | None = None
    rolling_update: RollingUpdate | None = None
    type: str | None = None


class Rollback(Part):
    revision: Int64 | None = None


class MachineDeploymentSpec(Part):
    auto_preserve_failed_machine_max: Int32 | None = None
    min_ready_seconds: Int32 | None = None
    paused: bool | None = None
    progress_deadline_seconds: Int32 | None = None
    replicas: Int32 | None = None
    revision_history_limit: Int32 | None = None
    rollback_to: Rollback | None = None
    selector: LabelSelector | None = None
    strategy: Strategy | None = None
    template: MachineTemplate


class MachineDeploymentCondition(Part):
    last_transition_time: datetime | None = None
    last_update_time: datetime | None = None
    message: str | None = None
    reason: str | None = None
    status: str
    type: str


class MachineDeploymentStatus(Part):
    available_replicas: Int32 | None = None
    collision_count: Int32 | None = None
    conditions: list[MachineDeploymentCondition] | None = None
    failed_machines: list[FailedMachine] | None = None
    observed_generation: Int64 | None = None
    preserved_failed_replicas: Int32 | None = None
    ready_replicas: Int32 | None = None
    replicas: Int32 | None = None
    unavailable_replicas: Int32 | None = None
    updated_replicas: Int32 | None = None


_DESIRED = Column("Desired", ".spec.replicas", "integer")
_READY = Column("Ready", ".status.readyReplicas", "integer")
_SCALE: dict[str, Any] = {
    "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
}

DEFINITIONS = (
    Definition(
        resource=MACHINE_CLASSES,
        description="What machines are made from.",
        spec=MachineClass,
        flat=True,
        columns=(),
    ),
    Definition(
        resource=MACHINES,
        description="A machine: a Pod that becomes a node of a Shoot.",
        spec=MachineSpec,
        status=MachineStatus,
        spec_required=False,
        columns=(
            Column("Status", ".status.currentStatus.phase"),
            AGE,
            Column("Node", ".metadata.labels.node"),
            Column("ProviderID", ".spec.providerID", priority=1),
        ),
    ),
    Definition(
        resource=MACHINE_SETS,
        description="A number of equal machines.",
        spec=MachineSetSpec,
        status=MachineSetStatus,
        spec_required=False,
        subresources=_SCALE,
        columns=(_DESIRED, Column("Current", ".status.replicas", "integer"), _READY, AGE),
    ),
    Definition(
        resource=MACHINE_DEPLOYMENTS,
        description="Machines that are replaced step by step when their template changes.",
        spec=MachineDeploymentSpec,
        status=MachineDeploymentStatus,
        spec_required=False,
        subresources=_SCALE,
        columns=(
            _READY,
            _DESIRED,
            Column("Up-to-date", ".status.updatedReplicas", "integer"),
            Column("Available", ".status.availableReplicas", "integer"),
            AGE,
        ),
    ),
)
