"""Cloud `aws`, as its extension 1.60 checks and emulates it."""

from __future__ import annotations

from clouds.aws import existing, faults, machines, mutation, network, profile, secret, services, shoot
from clouds.aws.api import CloudProfileConfig
from clouds.frame.cloud import Cloud

CLOUD = Cloud(
    type="aws",
    faults=faults.FAULTS,
    existing=existing.EXISTING,
    secret=secret.reason,
    shoot=shoot.problems,
    profile=profile.problems,
    namespaced_profile=profile.namespaced_problems,
    profile_config=CloudProfileConfig,
    mutate=mutation.mutate,
    account=secret.account,
    provider_secret=secret.provider_secret,
    infrastructure=network.PLANNER,
    dns=services.DNS,
    backups=services.BACKUPS,
    volumes=services.volumes,
    machines=machines.MACHINES,
    public_name=services.public_name,
)
