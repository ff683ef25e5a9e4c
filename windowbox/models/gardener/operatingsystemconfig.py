"""The OperatingSystemConfig: the files and units of a machine."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from windowbox.models.definitions import AGE, TYPE, Column, Definition, state
from windowbox.models.extensions import (
    IMMUTABLE,
    Anything,
    ExtensionSpec,
    ExtensionStatus,
    Int32,
    Part,
    SecretReference,
)
from windowbox.models.refs import OPERATING_SYSTEM_CONFIGS


class FileSecret(Part):
    data_key: str
    name: str


class FileInline(Part):
    data: str
    encoding: str
    """Nothing, or b64."""


class FileImage(Part):
    file_path_in_image: str
    image: str


class FileContent(Part):
    """Just one of `inline`, `secretRef` and `imageRef`."""

    image_ref: FileImage | None = None
    inline: FileInline | None = None
    secret_ref: FileSecret | None = None
    transmit_unencoded: bool | None = None
    """Whether the data stands in the script as it is, so that placeholders in it can be found."""


class File(Part):
    content: FileContent
    host_name: str | None = None
    path: str
    permissions: Int32 | None = None


class DropIn(Part):
    content: str
    name: str


class Unit(Part):
    command: str | None = None
    content: str | None = None
    drop_ins: list[DropIn] | None = None
    enable: bool | None = None
    file_paths: list[str] | None = None
    name: str


class Plugin(Part):
    op: str | None = None
    """add or remove."""
    path: list[str]
    values: Anything | None = None


class RegistryHost(Part):
    ca_certs: list[str] | None = None
    capabilities: list[str] | None = None
    override_path: bool | None = None
    url: str


class Registry(Part):
    hosts: list[RegistryHost] | None = None
    readiness_probe: bool | None = None
    server: str | None = None
    upstream: str


class Containerd(Part):
    plugins: list[Plugin] | None = None
    registries: list[Registry] | None = None
    sandbox_image: str


class CriConfig(Part):
    cgroup_driver: str | None = None
    containerd: Containerd | None = None
    name: str = Field(json_schema_extra={"enum": ["containerd"], **IMMUTABLE})


class Rotation(Part):
    last_initiation_time: datetime | None = None


class CredentialsRotation(Part):
    certificate_authorities: Rotation | None = None
    service_account_key: Rotation | None = None


class InPlaceUpdates(Part):
    credentials_rotation: CredentialsRotation | None = None
    kubelet: str
    operating_system_version: str


class OperatingSystemConfigSpec(ExtensionSpec):
    cri_config: CriConfig | None = None
    files: list[File] | None = None
    in_place_updates: InPlaceUpdates | None = None
    purpose: str
    """provision: what a new machine runs first. reconcile: what is kept up to date on it."""
    units: list[Unit] | None = None


class CloudConfig(Part):
    secret_ref: SecretReference


class OSUpdate(Part):
    args: list[str] | None = None
    command: str


class InPlaceUpdatesStatus(Part):
    os_update: OSUpdate | None = None


class OperatingSystemConfigStatus(ExtensionStatus):
    cloud_config: CloudConfig | None = None
    """Where the script for new machines is."""
    extension_files: list[File] | None = None
    extension_units: list[Unit] | None = None
    in_place_updates: InPlaceUpdatesStatus | None = None


DEFINITIONS = (
    Definition(
        resource=OPERATING_SYSTEM_CONFIGS,
        description="The files and units of a machine.",
        spec=OperatingSystemConfigSpec,
        status=OperatingSystemConfigStatus,
        columns=(TYPE, Column("Purpose", ".spec.purpose"), state("Status"), AGE),
    ),
)
