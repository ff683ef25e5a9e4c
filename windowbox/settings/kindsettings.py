"""Settings of the kinds that create objects."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path
from typing import Literal

from pydantic import Field

from windowbox.models.addresses import Network
from windowbox.models.gardener.images import BUILT_IN, ImageVector
from windowbox.settings.cloudsettings import CloudSettings
from windowbox.settings.section import Section
from windowbox.settings.webhooksettings import WebhookSettings


class MachineSettings(Section):
    """Machines of Shoots: MachineDeployments, MachineSets, Machines and their Pods."""

    mode: Literal["full", "driver", "off"] = Field(
        "full",
        description="`full`: MachineDeployments, MachineSets and Machines. `driver`: only the Pods of "
        "Machines, for Gardener's machine-controller-manager. `off`: none.",
    )
    resources: bool = Field(
        False, description="Give machine Pods the CPU, memory, zone and volumes of their machine type."
    )
    docker_socket: bool = Field(
        False,
        description="Mount the host's Docker socket into machine Pods, as Gardener's provider-local does.",
    )
    creation_timeout: float = Field(
        1200.0, gt=0, description="Seconds after which a Machine that has not joined is Failed."
    )
    health_timeout: float = Field(
        600.0, gt=0, description="Seconds after which a Machine with an unhealthy node is Failed."
    )
    drain_timeout: float = Field(
        7200.0, gt=0, description="Seconds after which a drain deletes Pods instead of evicting them."
    )
    in_place_timeout: float = Field(
        1200.0, gt=0, description="Seconds after which an in-place update without a result has failed."
    )
    preserve_timeout: float = Field(
        345600.0, gt=0, description="Seconds for which a Failed Machine is preserved."
    )
    evict_retries: int = Field(360, ge=1, description="Attempts to evict a Pod.")
    node_conditions: tuple[str, ...] = Field(
        ("KernelDeadlock", "ReadonlyFilesystem", "DiskPressure", "NetworkUnavailable"),
        description="Conditions of a node that make its Machine unhealthy.",
    )
    max_replicas: int = Field(
        10_000, ge=1, description="Machines that one MachineDeployment or MachineSet may ask for."
    )
    safety_up: int = Field(
        2, ge=0, description="Machines beyond replicas and surge at which a MachineSet is frozen."
    )
    safety_down: int = Field(1, ge=0, description="Machines below that limit at which it is unfrozen.")


class ControlPlaneSettings(Section):
    """What Shoots get."""

    ccm: Literal["none", "deployment"] = Field(
        "none",
        description="`none`: Shoots join, and windowbox serves their Services. `deployment`: each Shoot gets "
        "Gardener's cloud-controller-manager-local.",
    )
    webhooks: bool = Field(
        False,
        description="Give Shoots the configurations of the webhooks that `windowbox admit` serves. Requires "
        "the same `webhooks` settings as `admit`.",
    )


def _networks(*spelled: str) -> tuple[Network, ...]:
    return tuple(ip_network(one) for one in spelled)


class InfrastructureSettings(Section):
    """Networks in the NetworkPolicies of machines."""

    node_networks: tuple[Network, ...] = Field(
        _networks("172.18.0.0/24", "fd00:10::/64"), description="Networks of the nodes of provider clusters."
    )
    balancers: tuple[Network, ...] = Field(
        _networks("172.18.0.224/27", "fd00:10::e0/123"),
        description="Networks from which load balancers reach machines with a control plane.",
    )
    external: tuple[Network, ...] = Field(
        _networks("172.18.255.224/27", "fd00:ff::e0/123"), description="Networks of load balancer addresses."
    )
    dns: tuple[Network, ...] = Field(
        _networks("172.18.255.53/32", "fd00:ff::53/128"), description="Name servers that machines may query."
    )


class BackupSettings(Section):
    """Where backups are kept."""

    root: Path | None = Field(
        None, description="Folder of all buckets on this host. Unset: this worker keeps no backups."
    )
    host: str | None = Field(
        None, description="Name of the only host whose workers keep backups. Unset: all workers with a root."
    )
    mount_path: str = Field(
        "/etc/gardener/local-backupbuckets", description="Path of the root in the Pod of etcd."
    )


class HeartbeatSettings(Section):
    """The Lease that shows Gardener that windowbox works."""

    namespace: str | None = Field(None, description="Namespace of the Lease. Unset: no Lease is renewed.")
    interval: int = Field(30, ge=1, description="Seconds between renewals.")
    holder: str = Field("provider-local", description="`holderIdentity` of the Lease.")


class HealthSettings(Section):
    """Conditions of extension objects."""

    conditions: Literal["short", "long"] = Field(
        "short",
        description="`short`: EveryNodeReady of Workers, as in Gardener's provider-local. `long`: also the "
        "conditions of ControlPlanes and Workers in Gardener's older documentation.",
    )


class ImageSettings(Section):
    """Container images of deployed objects."""

    overwrite: Path | None = Field(
        None,
        description="File with entries that overwrite the built-in image vector. Unset: the file that the "
        "environment variable IMAGEVECTOR_OVERWRITE names, if any.",
    )


class KindSettings(Section):
    """The settings of all these kinds."""

    controlplane: ControlPlaneSettings = ControlPlaneSettings()
    infrastructure: InfrastructureSettings = InfrastructureSettings()
    backup: BackupSettings = BackupSettings()
    heartbeat: HeartbeatSettings = HeartbeatSettings()
    machines: MachineSettings = MachineSettings()
    images: ImageVector = BUILT_IN
    health: HealthSettings = HealthSettings()
    webhooks: WebhookSettings = WebhookSettings()
    clouds: CloudSettings = CloudSettings()
