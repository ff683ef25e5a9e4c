"""Settings of the kinds that create objects."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from windowbox.models.gardener.images import BUILT_IN, ImageVector
from windowbox.settings.controlplanesettings import ControlPlaneSettings
from windowbox.settings.machinesettings import MachineSettings
from windowbox.settings.webhooksettings import WebhookSettings

Network = IPv4Network | IPv6Network


def _networks(*spelled: str) -> tuple[Network, ...]:
    return tuple(ip_network(one) for one in spelled)


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class InfrastructureSettings(_Section):
    """Networks in the NetworkPolicies of machines."""

    node_networks: tuple[Network, ...] = Field(
        _networks("172.18.0.0/24", "fd00:10::/64"), description="Networks of the nodes of provider clusters."
    )
    balancers: tuple[Network, ...] = Field(
        _networks("172.18.0.224/27", "fd00:10::e0/123"),
        description="Networks from which load balancers reach machines with a control plane.",
    )
    external: tuple[Network, ...] = Field(
        _networks("172.18.255.224/27", "fd00:ff::e0/123"),
        description="Networks of load balancer addresses.",
    )
    dns: tuple[Network, ...] = Field(
        _networks("172.18.255.53/32", "fd00:ff::53/128"),
        description="Name servers that machines may query.",
    )


class BackupSettings(_Section):
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


class HeartbeatSettings(_Section):
    """The Lease that shows Gardener that windowbox works."""

    namespace: str | None = Field(None, description="Namespace of the Lease. Unset: no Lease is renewed.")
    interval: int = Field(30, ge=1, description="Seconds between renewals.")
    holder: str = Field("provider-local", description="`holderIdentity` of the Lease.")


class HealthSettings(_Section):
    """Conditions of extension objects."""

    conditions: Literal["short", "long"] = Field(
        "short",
        description="`short`: EveryNodeReady of Workers, as in Gardener's provider-local. `long`: also the "
        "conditions of ControlPlanes and Workers in Gardener's older documentation.",
    )


class ImageSettings(_Section):
    """Container images of deployed objects."""

    overwrite: Path | None = Field(
        None,
        description="File with entries that overwrite the built-in image vector. Unset: the file that the "
        "environment variable IMAGEVECTOR_OVERWRITE names, if any.",
    )


class KindSettings(_Section):
    """The settings of all these kinds."""

    controlplane: ControlPlaneSettings = ControlPlaneSettings()
    infrastructure: InfrastructureSettings = InfrastructureSettings()
    backup: BackupSettings = BackupSettings()
    heartbeat: HeartbeatSettings = HeartbeatSettings()
    machines: MachineSettings = MachineSettings()
    images: ImageVector = BUILT_IN
    health: HealthSettings = HealthSettings()
    webhooks: WebhookSettings = WebhookSettings()
