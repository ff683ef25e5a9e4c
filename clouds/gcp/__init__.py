"""Cloud `gcp`, as its extension 1.42 checks and emulates it."""

from __future__ import annotations

from clouds.frame import networkconfig
from clouds.frame.cloud import Cloud
from clouds.gcp import backup, existing, faults, machines, network, profile, secret, services, shoot
from clouds.gcp.api import CloudProfileConfig

CLOUD = Cloud(
    type="gcp",
    faults=faults.FAULTS,
    existing=existing.EXISTING,
    secret=secret.reason,
    account=secret.account,
    shoot=shoot.problems,
    profile=profile.problems,
    namespaced_profile=profile.namespaced_problems,
    profile_config=CloudProfileConfig,
    seed=backup.seed_problems,
    mutate=networkconfig.without_overlay(snat=True),
    dns=services.DNS,
    infrastructure=network.PLANNER,
    backups=backup.BACKUPS,
    volumes=services.volumes,
    machines=machines.MACHINES,
)
