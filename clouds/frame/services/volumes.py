"""Volumes of a Shoot: its storage classes, and the names of the drivers behind them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from clouds.frame.decoding import Config, decode


@dataclass(frozen=True)
class StorageSite:
    """What the storage classes of a Shoot are made of."""

    config: object
    """The ControlPlaneConfig, if there is one."""
    profile_config: object
    """The CloudProfileConfig."""
    zones: tuple[str, ...] = ()
    """Of all pools."""


@dataclass(frozen=True, kw_only=True)
class StorageClass:
    name: str
    provisioner: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    default: bool = False
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    reclaim_policy: str = "Delete"
    binding: str = "WaitForFirstConsumer"


@dataclass(frozen=True)
class SnapshotClass:
    """A VolumeSnapshotClass."""

    driver: str
    default: bool = False


@dataclass(frozen=True, kw_only=True)
class Volumes:
    classes: tuple[StorageClass, ...] = ()
    drivers: tuple[str, ...] = ()
    """The provisioners that serve."""
    snapshots: SnapshotClass | None = None
    smallest: str = ""
    """The least size of a volume, as a quantity; empty: any."""


C = TypeVar("C", bound=Config)


def config_of(model: type[C], site: StorageSite) -> C:
    """The ControlPlaneConfig; without one, an empty one."""
    return model() if site.config is None else decode(model, site.config, "spec.providerConfig")
