"""Cloud `equinixmetal`, as its extension 2.14 reconciles and emulates it. It has no admission."""

from __future__ import annotations

from clouds.equinixmetal import checks, faults, machines, services, sshkey
from clouds.frame.cloud import Cloud
from clouds.frame.operator.existing import RESERVATION

CLOUD = Cloud(
    type="equinixmetal",
    faults=faults.FAULTS,
    secret=checks.secret_reason,
    shoot=checks.shoot_problems,
    profile=checks.profile_problems,
    unused_profile=checks.unused_problems,
    account=checks.account,
    infrastructure=sshkey.PLANNER,
    volumes=services.volumes,
    machines=machines.MACHINES,
    existing={RESERVATION: {}},
)
