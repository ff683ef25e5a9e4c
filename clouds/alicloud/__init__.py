"""Cloud `alicloud`, as its extension 1.58 checks and emulates it."""

from __future__ import annotations

from clouds.alicloud import existing, faults, machines, mutation, network, profile, secret, services, shoot
from clouds.frame.cloud import Cloud

CLOUD = Cloud(
    type="alicloud",
    existing=existing.EXISTING,
    faults=faults.FAULTS,
    secret=secret.reason,
    account=secret.account,
    infrastructure=network.PLANNER,
    shoot=shoot.problems,
    profile=profile.problems,
    mutate=mutation.mutate,
    dns=services.DNS,
    backups=services.BACKUPS,
    volumes=services.volumes,
    machines=machines.MACHINES,
)
