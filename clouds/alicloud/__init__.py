"""Cloud `alicloud`, as its extension 1.58 checks and emulates it."""

from __future__ import annotations

from clouds.alicloud import backup, dns, existing, faults, mutation, network, profile, secret, shoot
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
    dns=dns.DNS,
    backups=backup.BACKUPS,
)
