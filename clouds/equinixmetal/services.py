"""No volumes: there is no driver any more (EQX-C1)."""

from __future__ import annotations

from clouds.equinixmetal.api import ControlPlaneConfig
from clouds.frame.services.volumes import StorageSite, Volumes, config_of


def volumes(site: StorageSite) -> Volumes:
    config_of(ControlPlaneConfig, site)
    return Volumes()
