"""The settings of the kinds that make objects."""

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
    """The addresses that NetworkPolicies of machines speak of."""

    node_networks: tuple[Network, ...] = Field(
        _networks("172.18.0.0/24", "fd00:10::/64"), description="Where the nodes of provider clusters are."
    )
    balancers: tuple[Network, ...] = Field(
        _networks("172.18.0.224/27", "fd00:10::e0/123"),
        description="From where load balancers reach machines that are control planes themselves.",
    )
    external: tuple[Network, ...] = Field(
        _networks("172.18.255.224/27", "fd00:ff::e0/123"),
        description="The addresses that load balancers get.",
    )
    dns: tuple[Network, ...] = Field(
        _networks("172.18.255.53/32", "fd00:ff::53/128"),
        description="The name servers that machines may ask.",
    )


class BackupSettings(_Section):
    """Where backups are kept."""

    root: Path | None = Field(
        None, description="Folder of all buckets, on this host; unset: this worker keeps no backups."
    )
    host: str | None = Field(
        None, description="Only workers on the host of this name keep backups; unset: those with a root."
    )
    mount_path: str = Field(
        "/etc/gardener/local-backupbuckets", description="Where etcd finds the root in its Pod."
    )


class HeartbeatSettings(_Section):
    """The Lease that tells Gardener that everything here is well."""

    namespace: str | None = Field(None, description="Where the Lease is; unset: none is renewed.")
    interval: int = Field(30, ge=1, description="Seconds between renewals.")
    holder: str = Field("provider-local", description="By whom it is held.")


class HealthSettings(_Section):
    """What the conditions of extension objects tell."""

    conditions: Literal["short", "long"] = Field(
        "short",
        description="short: EveryNodeReady of Workers, as Gardener's own; long: also what its older "
        "documentation lists of ControlPlanes and Workers. Networks have none: they are not served.",
    )


class ImageSettings(_Section):
    """The container images of what is deployed."""

    overwrite: Path | None = Field(
        None,
        description="File with entries that overwrite the built-in image vector; unset: the one that the "
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
