"""Cloud `alicloud`, as its extension 1.58 checks and emulates it."""

from __future__ import annotations

from clouds.alicloud import backup, dns, faults, mutation, profile, secret, shoot
from clouds.frame.cloud import Cloud

CLOUD = Cloud(
    type="alicloud",
    faults=faults.FAULTS,
    secret=secret.reason,
    account=secret.account,
    shoot=shoot.problems,
    profile=profile.problems,
    mutate=mutation.mutate,
    dns=dns.DNS,
    backups=backup.BACKUPS,
)
