"""Kinds whose models only serve their CustomResourceDefinitions: workers read these objects as JSON."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from windowbox.models.definitions import AGE, REGION, TYPE, Column, Definition, state
from windowbox.models.extensions import (
    Bytes,
    Condition,
    ExtensionSpec,
    ExtensionStatus,
    Int32,
    Int64,
    LoadBalancerIngress,
    ObjectReference,
    Part,
    Raw,
    SecretReference,
    Strings,
)
from windowbox.models.refs import (
    BACKUP_BUCKETS,
    BACKUP_ENTRIES,
    CLUSTERS,
    CONTROL_PLANES,
    EXPOSURES,
    EXTENSIONS,
    INFRASTRUCTURES,
    IP_POOLS,
    MANAGED_RESOURCES,
)


class BackupBucketSpec(ExtensionSpec):
    region: str
    secret_ref: SecretReference
    """The Secret with the credentials for the bucket."""


class BackupBucketStatus(ExtensionStatus):
    generated_secret_ref: SecretReference | None = None
    """A Secret that was made for the bucket, and is to be used instead."""


class BackupEntrySpec(ExtensionSpec):
    backup_bucket_provider_status: Raw | None = None
    bucket_name: str
    region: str
    secret_ref: SecretReference
    """The Secret with the credentials for the bucket."""


class NodeAddress(Part):
    address: str
    type: str
    """InternalIP, ExternalIP, Hostname, InternalDNS or ExternalDNS."""


class Endpoint(Part):
    addresses: list[NodeAddress]
    node_name: str


class ExposureSpec(ExtensionSpec):
    credentials_ref: ObjectReference | None = None
    """The Secret with the kubeconfig of the cluster that the machines run in."""
    endpoints: list[Endpoint]
    """The nodes that the API server runs on."""
    port: Int32


class ExposureStatus(ExtensionStatus):
    ingress: list[LoadBalancerIngress] | None = None
    """Where the API server is reached."""


class InfrastructureSpec(ExtensionSpec):
    region: str
    secret_ref: SecretReference
    """The Secret with the kubeconfig of the cluster that the machines run in."""
    ssh_public_key: Bytes | None = None


class Networking(Part):
    nodes: list[str] | None = None
    pods: list[str] | None = None
    services: list[str] | None = None


class InfrastructureStatus(ExtensionStatus):
    egress_cidrs: list[str] | None = Field(None, alias="egressCIDRs")
    """From where the Shoot's machines reach others."""
    networking: Networking | None = None
    nodes_cidr: str | None = Field(None, alias="nodesCIDR")


class ControlPlaneSpec(ExtensionSpec):
    infrastructure_provider_status: Raw | None = None
    region: str
    secret_ref: SecretReference
    """The Secret with the provider's credentials."""


class ClusterSpec(Part):
    cloud_profile: Raw
    """The CloudProfile of the Shoot, as it is in the garden."""
    seed: Raw | None = None
    """The Seed of the Shoot. Absent where a Shoot hosts itself."""
    shoot: Raw
    """The Shoot, as it is in the garden."""


class SecretName(Part):
    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})

    name: str = ""


class GroupKind(Part):
    group: str
    kind: str


class ManagedObject(ObjectReference):
    annotations: Strings | None = None
    labels: Strings | None = None


class ManagedResourceSpec(Part):
    class_: str | None = Field(None, alias="class")
    """Which resource manager applies it: seed, or nothing for that of the Shoot."""
    delete_persistent_volume_claims: bool | None = None
    equivalences: list[list[GroupKind]] | None = None
    """Kinds that are the same thing by different names."""
    force_overwrite_annotations: bool | None = None
    force_overwrite_labels: bool | None = None
    inject_labels: Strings | None = None
    keep_objects: bool | None = None
    """Whether the objects stay when the ManagedResource goes."""
    secret_refs: list[SecretName]


class ManagedResourceStatus(Part):
    conditions: list[Condition] | None = None
    observed_generation: Int64 | None = None
    resources: list[ManagedObject] | None = None
    secrets_data_checksum: str | None = None


class IPPoolSpec(Part):
    cidr: str
    ipip_mode: str | None = None
    nat_outgoing: bool | None = None
    node_selector: str | None = None


DEFINITIONS = (
    Definition(
        resource=BACKUP_BUCKETS,
        description="A place for the backups of etcd.",
        spec=BackupBucketSpec,
        status=BackupBucketStatus,
        columns=(TYPE, REGION, state("State"), AGE),
    ),
    Definition(
        resource=BACKUP_ENTRIES,
        description="The backups of one etcd in a bucket.",
        spec=BackupEntrySpec,
        status=ExtensionStatus,
        columns=(TYPE, REGION, Column("Bucket", ".spec.bucketName"), state("State"), AGE),
    ),
    Definition(
        resource=EXPOSURES,
        description="The way to the API server of a Shoot that hosts itself.",
        spec=ExposureSpec,
        status=ExposureStatus,
        columns=(
            TYPE,
            Column("IP", ".status.ingress[0].ip"),
            Column("Hostname", ".status.ingress[0].hostname"),
            state("Status"),
            AGE,
        ),
    ),
    Definition(
        resource=INFRASTRUCTURES,
        description="The place where the machines of a Shoot live.",
        spec=InfrastructureSpec,
        status=InfrastructureStatus,
        columns=(TYPE, REGION, state("Status"), AGE),
    ),
    Definition(
        resource=CONTROL_PLANES,
        description="What a provider adds to the control plane of a Shoot.",
        spec=ControlPlaneSpec,
        status=ExtensionStatus,
        columns=(TYPE, state("Status"), AGE),
    ),
    Definition(
        resource=EXTENSIONS,
        description="Something that an extension adds to a Shoot, or to a seed.",
        spec=ExtensionSpec,
        status=ExtensionStatus,
        columns=(TYPE, state("Status"), AGE),
    ),
    Definition(
        resource=CLUSTERS,
        description="What extensions may know of a Shoot. Its name is the namespace of their objects.",
        spec=ClusterSpec,
        columns=(AGE,),
    ),
    Definition(
        resource=MANAGED_RESOURCES,
        description="Objects that a resource manager applies.",
        spec=ManagedResourceSpec,
        status=ManagedResourceStatus,
        spec_required=False,
        columns=(
            Column("Class", ".spec.class"),
            *(
                Column(name, f'.status.conditions[?(@.type=="Resources{name}")].status')
                for name in ("Applied", "Healthy", "Progressing")
            ),
            AGE,
        ),
    ),
    Definition(
        resource=IP_POOLS,
        description="Addresses that Calico gives to Pods. Defined here where there is no Calico.",
        spec=IPPoolSpec,
        columns=(Column("CIDR", ".spec.cidr"), AGE),
    ),
)
