"""Cloud `azure`, as its extension 1.50 checks and emulates it."""

from __future__ import annotations

from clouds.azure import existing, faults, machines, mutation, network, profile, secret, services, shoot
from clouds.azure.api import CloudProfileConfig
from clouds.frame.cloud import Cloud

CLOUD = Cloud(
    type="azure",
    faults=faults.FAULTS,
    existing=existing.EXISTING,
    secret=secret.reason,
    account=secret.account,
    shoot=shoot.problems,
    profile=profile.problems,
    namespaced_profile=profile.namespaced_problems,
    profile_config=CloudProfileConfig,
    mutate=mutation.mutate,
    dns=services.DNS,
    infrastructure=network.PLANNER,
    backups=services.BACKUPS,
    volumes=services.volumes,
    machines=machines.MACHINES,
)
