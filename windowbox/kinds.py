"""The table of kinds that windowbox serves. A new kind takes a package in `workers/kinds`, a model and a row.

Derived from it: which kinds are watched, the rights of roles in the cluster and on the bus, the pools that
workers serve, what `windowbox doctor` and `windowbox trace` know, and the tables in docs/kinds.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from windowbox.models.refs import (
    BACKUP_BUCKETS,
    BACKUP_ENTRIES,
    BASTIONS,
    CERTIFICATE_REQUESTS,
    CLUSTERS,
    CONTAINER_RUNTIMES,
    CONTROL_PLANES,
    DEPLOYMENTS,
    DNSRECORDS,
    ENDPOINT_SLICES,
    EXPOSURES,
    EXTENSIONS,
    HEARTBEATS,
    INFRASTRUCTURES,
    INGRESSES,
    IP_POOLS,
    MACHINE_CLASSES,
    MACHINE_DEPLOYMENTS,
    MACHINE_LEASES,
    MACHINE_SETS,
    MACHINES,
    MANAGED_RESOURCES,
    NAMESPACES,
    NETWORK_POLICIES,
    NETWORKS,
    NODES,
    OPERATING_SYSTEM_CONFIGS,
    PLANE_DEPLOYMENTS,
    PODS,
    SECRETS,
    SERVICES,
    VOLUME_ATTACHMENTS,
    WORKERS,
    Resource,
)

READ = ("get",)
APPLY = ("create", "patch", "delete")
MAKE = (*READ, *APPLY)
WATCH = ("list", "watch")


@dataclass(frozen=True)
class Right:
    """A right of a role on objects of a kind, beyond those that follow from the other columns."""

    resource: Resource
    verbs: tuple[str, ...]
    role: Literal["worker", "patcher", "provider", "target"] = "worker"
    part: str = ""
    """A subresource such as `status`."""


@dataclass(frozen=True, kw_only=True)
class Served:
    """A kind of objects, or one type of it, and the pool that serves it."""

    resource: Resource
    pool: str
    about: str
    """The effect of an object, for docs/kinds.md."""
    type: str = ""
    """Of an extension kind: the `spec.type` that is served. Empty for kinds that are no extensions."""
    package: str = ""
    """In `workers`; `machines.set` has the module `setpool`. Empty: in `workers.kinds`, named as the pool."""
    which: str = ""
    """Which objects of a kind that is no extension are served."""
    aliases: tuple[str, ...] = ()
    """Other names for `windowbox trace`, besides plural, kind and short names."""
    credentials: str = ""
    """Where the Secret with the kubeconfig of the provider cluster is named: a field of the object such as
    `spec.secretRef`, or the name of a Secret in its namespace. Empty: it needs no provider cluster."""
    credentials_of: Resource | None = None
    """The kind of the objects that name that Secret, by a field, where it is not the kind itself."""
    owns: tuple[Resource, ...] = ()
    """The watched kinds of the objects that it owns, in the provider cluster if it has one."""
    owned_names: tuple[str, ...] = ()
    """The names of those objects, if they are fixed: no others may be changed or deleted."""
    awaits: tuple[Resource, ...] = ()
    """The kinds of objects that other controllers create and that it waits for."""
    reads: tuple[Resource, ...] = ()
    """The other kinds that it reads from the mirror."""
    rights: tuple[Right, ...] = ()
    setting: str = ""
    """The setting that enables it, if it is off by default: `backup.root for …`."""

    @property
    def module(self) -> str:
        package = self.package or f"kinds.{self.pool}"
        return f"workers.{package}.{package.rpartition('.')[2]}pool"

    @property
    def title(self) -> str:
        return f"{self.resource.kind} {self.which or f'of type {self.type}'}"


def _extension(pool: str, about: str, *rights: Right) -> Served:
    """The types of the kind Extension have their names in common with their pools."""
    return Served(
        resource=EXTENSIONS,
        type=pool,
        pool=pool,
        package="kinds.extension",
        about=about,
        owns=(MANAGED_RESOURCES,),
        owned_names=(pool,),
        rights=(Right(SECRETS, MAKE), *rights),
    )


_MACHINE_KINDS = (MACHINE_CLASSES, MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES)


def _set_controller(resource: Resource) -> tuple[Right, ...]:
    """The rights that MachineSets and MachineDeployments need on themselves: metadata, and status."""
    return (
        Right(resource, (*READ, "patch")),
        Right(resource, READ, "patcher"),
        Right(resource, ("patch",), "patcher", part="status"),
    )


KINDS = (
    Served(
        resource=BACKUP_BUCKETS,
        type="local",
        pool="backupbucket",
        package="kinds.backups",
        about="a folder under `backup.root`, on the host with that folder",
        rights=(Right(SECRETS, MAKE),),
        setting="backup.root for the workers of one host",
    ),
    Served(
        resource=BACKUP_ENTRIES,
        type="local",
        pool="backupentry",
        package="kinds.backups",
        about="a folder in its bucket, and the Secret `etcd-backup`",
        awaits=(NAMESPACES,),
        rights=(Right(SECRETS, MAKE),),
        setting="backup.root for the workers of one host",
    ),
    Served(
        resource=BASTIONS,
        type="local",
        pool="bastion",
        about="a Pod with SSH behind a load balancer, open to the clients in `spec.ingress`",
        credentials="cloudprovider",
        owns=(PODS, SERVICES, NETWORK_POLICIES),
        awaits=(NAMESPACES,),
        rights=(Right(SECRETS, READ), Right(SECRETS, MAKE, "provider")),
    ),
    Served(
        resource=CONTROL_PLANES,
        type="local",
        pool="controlplane",
        about="ManagedResources with storage and rights for the Shoot, generated secrets, its membership: "
        "[controlplanes.md](controlplanes.md)",
        owns=(MANAGED_RESOURCES,),
        owned_names=(
            "extension-controlplane-configuration-seed",
            "extension-controlplane-seed",
            "extension-controlplane-shoot",
            "extension-controlplane-shoot-webhooks",
            "extension-controlplane-storageclasses",
        ),
        awaits=(PLANE_DEPLOYMENTS,),
        rights=(Right(SECRETS, (*MAKE, "list")), Right(DEPLOYMENTS, READ)),
    ),
    Served(
        resource=DNSRECORDS,
        type="local",
        pool="dnsrecord",
        package="dns.record",
        about="a record set on the name server of its zone",
        aliases=("dnsrec",),
        rights=(Right(SECRETS, READ),),
    ),
    _extension("local-ext-seed", "a ManagedResource"),
    _extension(
        "local-ext-shoot",
        "a ManagedResource",
        # Those of Gardener's test of forced deletions have generated names.
        Right(NETWORK_POLICIES, (*APPLY, "list")),
    ),
    _extension("local-ext-shoot-after-worker", "a ManagedResource"),
    Served(
        resource=INFRASTRUCTURES,
        type="local",
        pool="infrastructure",
        about="a namespace for machines, with networks and NetworkPolicies",
        credentials="spec.secretRef",
        owns=(NAMESPACES, IP_POOLS, NETWORK_POLICIES),
        rights=(
            Right(SECRETS, READ),
            Right(NAMESPACES, READ, "provider"),
        ),
    ),
    Served(
        resource=OPERATING_SYSTEM_CONFIGS,
        type="local",
        pool="operatingsystemconfig",
        about="a script for machines, in a Secret; units and files",
        rights=(Right(SECRETS, MAKE),),
    ),
    Served(
        resource=EXPOSURES,
        type="local",
        pool="exposure",
        about="a load balancer in front of control planes",
        aliases=("exposure",),
        credentials="spec.credentialsRef",
        owns=(SERVICES, ENDPOINT_SLICES),
        rights=(Right(SECRETS, READ),),
    ),
    Served(
        resource=WORKERS,
        type="local",
        pool="worker",
        package="machines.worker",
        about="MachineClasses and MachineDeployments for the zones of its pools",
        owns=_MACHINE_KINDS,
        awaits=(MACHINE_SETS, MACHINES, MANAGED_RESOURCES, PLANE_DEPLOYMENTS),
        rights=(
            Right(SECRETS, MAKE),
            # Before a Worker goes, the API is asked whether anything is left.
            *(Right(one, ("list",)) for one in _MACHINE_KINDS),
            # Gardener's machine-controller-manager, where there is one, sleeps while the Shoot does.
            Right(DEPLOYMENTS, READ),
            Right(DEPLOYMENTS, ("patch",), part="scale"),
        ),
    ),
    Served(
        resource=INGRESSES,
        pool="ingress",
        package="dns.ingress",
        about="a DNSRecord for each of its hosts",
        which="in namespaces of Shoots",
        owns=(DNSRECORDS,),
        rights=(Right(INGRESSES, READ),),
    ),
    Served(
        resource=MACHINES,
        pool="machine",
        package="machines.machine",
        about="a Pod that joins its Shoot as a node: [machines.md](machines.md)",
        which="of classes with provider `local`",
        credentials="credentialsSecretRef",
        credentials_of=MACHINE_CLASSES,
        owns=(PODS, SERVICES),
        reads=(IP_POOLS, MACHINE_CLASSES, NAMESPACES, NODES),
        rights=(
            Right(MACHINES, (*READ, "list", "patch", "delete")),
            Right(MACHINES, READ, "patcher"),
            Right(MACHINES, ("patch",), "patcher", part="status"),
            Right(MACHINE_CLASSES, (*READ, "list", "patch")),
            Right(WORKERS, ("list",)),
            Right(SECRETS, (*READ, "patch")),
            Right(PODS, READ, "provider"),
            Right(NAMESPACES, READ, "provider"),
            Right(SECRETS, MAKE, "provider"),
            Right(NODES, (*READ, *WATCH, "patch", "delete"), "target"),
            Right(NODES, ("patch",), "target", part="status"),
            Right(PODS, ("list", "delete"), "target"),
            Right(PODS, ("create",), "target", part="eviction"),
            Right(CERTIFICATE_REQUESTS, ("list",), "target"),
            Right(VOLUME_ATTACHMENTS, ("list", "delete"), "target"),
            Right(SECRETS, ("create", *READ, "delete"), "target"),
        ),
    ),
    Served(
        resource=SERVICES,
        pool="loadbalancer",
        package="loadbalancer",
        about="an address and an Envoy: [loadbalancers.md](loadbalancers.md)",
        which="of type LoadBalancer",
        aliases=("lb",),
        reads=(ENDPOINT_SLICES, NAMESPACES, NODES, PODS),
        # Those of Kubernetes' service controller: nothing of a Service is changed but its status.
        rights=(
            Right(SERVICES, (*READ, "list")),
            Right(SERVICES, ("patch",), part="status"),
            Right(SERVICES, READ, "patcher"),
            Right(SERVICES, ("patch",), "patcher", part="status"),
        ),
        setting="loadbalancer.ranges",
    ),
    Served(
        resource=MACHINE_DEPLOYMENTS,
        pool="machinedeployment",
        package="machines.deployment",
        about="MachineSets, one for each template, scaled and rolled",
        which="of all namespaces",
        owns=(MACHINE_SETS,),
        reads=(MACHINE_LEASES, MACHINES),
        rights=(
            *_set_controller(MACHINE_DEPLOYMENTS),
            Right(MACHINE_SETS, ("list",)),
            Right(MACHINE_LEASES, ("create", *READ, "patch")),
        ),
    ),
    Served(
        resource=MACHINE_SETS,
        pool="machineset",
        package="machines.set",
        about="its number of Machines",
        which="of all namespaces",
        owns=(MACHINES,),
        reads=(MACHINE_DEPLOYMENTS, MACHINE_LEASES, NODES),
        rights=(*_set_controller(MACHINE_SETS), Right(MACHINES, ("list",))),
    ),
    Served(
        resource=HEARTBEATS,
        pool="heartbeat",
        about="renewed while windowbox works",
        which=HEARTBEATS.named,
        rights=(Right(HEARTBEATS, ("create", *READ, "patch")),),
        setting="heartbeat.namespace to the namespace of the ControllerInstallation",
    ),
)

SHARED = (CLUSTERS, NAMESPACES)
"""The kinds that the life cycle of extensions reads: the Shoot of an object, and its namespace."""


@dataclass(frozen=True, kw_only=True)
class Unserved:
    """A kind of Gardener's extensions whose objects of type `local` windowbox ignores."""

    resource: Resource
    why: str
    remedy: str


UNSERVED = (
    Unserved(
        resource=NETWORKS,
        why="Gardener's own provider-local has had none since 1.44.1",
        remedy="give the Shoot a networking type with an extension, such as calico or cilium",
    ),
    Unserved(
        resource=CONTAINER_RUNTIMES,
        why="a type `local` never existed",
        remedy="remove it from the Shoot's workers, or choose a type with an extension",
    ),
)

POOLS: dict[str, Served] = {row.pool: row for row in sorted(KINDS, key=lambda row: row.pool)}
"""By their names."""

PROVIDER_KINDS = tuple(
    dict.fromkeys(one for row in KINDS if row.credentials for one in (*row.owns, *row.awaits))
)
"""The kinds that are watched in provider clusters."""

RESOURCES: dict[str, Resource] = {
    one.id: one
    for row in KINDS
    for one in (row.resource, *row.owns, *row.awaits, *row.reads, *SHARED, SECRETS)
}
"""Every kind that windowbox reads, by its id."""

WATCHED = tuple(sorted(RESOURCES.keys() - {SECRETS.id}))
"""The ids of the kinds that are mirrored to the bus. Secrets never are."""


def named(name: str) -> Resource | None:
    """The kind for what a person types: id, plural, kind, short name or alias, in any case."""
    lowered = name.lower()
    by_name = next((one for one in RESOURCES.values() if lowered in one.names), None)
    return by_name or next((row.resource for row in KINDS if lowered in row.aliases), None)
