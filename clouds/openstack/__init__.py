"""Cloud `openstack`, as its extension 1.45 checks and emulates it."""

from __future__ import annotations

from clouds.frame.cloud import Cloud
from clouds.openstack import existing, faults, machines, mutation, network, profile, secret, services, shoot
from clouds.openstack.api import CloudProfileConfig

CLOUD = Cloud(
    type="openstack",
    existing=existing.EXISTING,
    faults=faults.FAULTS,
    secret=secret.reason,
    account=secret.account,
    provider_secret=secret.provider_secret,
    infrastructure=network.PLANNER,
    shoot=shoot.problems,
    profile=profile.problems,
    namespaced_profile=profile.namespaced_problems,
    profile_config=CloudProfileConfig,
    mutate=mutation.mutate,
    dns=services.DNS,
    backups=services.BACKUPS,
    volumes=services.volumes,
    machines=machines.MACHINES,
)
