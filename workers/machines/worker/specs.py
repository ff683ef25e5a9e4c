"""What a Worker's spec asks for, checked before anything is made of it."""

from __future__ import annotations

import re

from windowbox.errors import Malformed
from windowbox.models.gardener.cloudprofile import CloudProfileSpec
from windowbox.models.gardener.worker import WorkerPool, WorkerSpec
from windowbox.models.objects import Object
from workers.core.lifecycle import specs

MOST_POOLS = 100
MOST_ZONES = 32
MOST_GROUPS = 500
"""Zones of all pools."""
MOST_MACHINES = 10_000
LONGEST_NAME = 63
"""The name of a MachineDeployment is the value of a label of its machines."""
_STRATEGIES = ("", "AutoRollingUpdate", "AutoInPlaceUpdate", "ManualInPlaceUpdate")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_PERCENT = re.compile(r"\d{1,3}%")


def checked(worker: Object, profile: CloudProfileSpec) -> WorkerSpec:
    """The spec. Malformed, with field, value and remedy, where no machines can be made of it."""
    spec = specs.parsed(WorkerSpec, worker)
    if len(spec.pools) > MOST_POOLS:
        raise Malformed(f"spec.pools has {len(spec.pools)} entries: there may be {MOST_POOLS}, remove some")
    if not spec.secret_ref.name:
        raise Malformed("spec.secretRef.name is not set: name the Secret with the provider's kubeconfig")
    names = [pool.name for pool in spec.pools]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise Malformed(f"spec.pools has two pools of the name {repeated!r:.80}: rename one of them")
    if (zones := sum(len(pool.zones or [""]) for pool in spec.pools)) > MOST_GROUPS:
        raise Malformed(
            f"spec.pools have {zones} zones: there may be {MOST_GROUPS} of all pools, remove some"
        )
    known = {machine.name for machine in profile.machine_types or []}
    for pool in spec.pools:
        _check(pool, known)
    if (least := sum(pool.minimum for pool in spec.pools)) > MOST_MACHINES:
        raise Malformed(f"minimum of all spec.pools is {least}: there may be {MOST_MACHINES}, lower some")
    return spec


def _check(pool: WorkerPool, machine_types: set[str]) -> None:
    where = f"of pool {pool.name!r:.80} in spec.pools"
    if not _NAME.fullmatch(pool.name):
        raise Malformed(f"name {where}: use lower-case letters, digits and dashes")
    if pool.machine_type not in machine_types:
        raise Malformed(
            f"machineType {where} is {pool.machine_type!r:.80}, which is not among spec.machineTypes of the "
            "CloudProfile: correct it, or add the type"
        )
    if pool.node_template is None:
        raise Malformed(f"nodeTemplate {where} is not set: give the capacity of its machines")
    if not 0 <= pool.minimum <= pool.maximum <= MOST_MACHINES:
        raise Malformed(
            f"minimum and maximum {where} are {pool.minimum} and {pool.maximum}: "
            f"choose 0 ≤ minimum ≤ maximum ≤ {MOST_MACHINES}"
        )
    zones = pool.zones or []
    if len(zones) > MOST_ZONES:
        raise Malformed(f"zones {where} has {len(zones)} entries: there may be {MOST_ZONES}, remove some")
    if (pool.update_strategy or "") not in _STRATEGIES:
        raise Malformed(
            f"updateStrategy {where} is {pool.update_strategy!r:.80}: "
            f"make it one of {', '.join(_STRATEGIES[1:])}"
        )
    for field, value in (("maxSurge", pool.max_surge), ("maxUnavailable", pool.max_unavailable)):
        if (value < 0) if isinstance(value, int) else not _PERCENT.fullmatch(value):
            raise Malformed(
                f"{field} {where} is {value!r:.80}: make it a number, or a percentage such as 25%"
            )
    if pool.machine_image is None:
        raise Malformed(f"machineImage {where} is not set: name an image and its version")
    if not pool.user_data_secret_ref.name or not pool.user_data_secret_ref.key:
        raise Malformed(
            f"userDataSecretRef {where} needs a name and a key: name the Secret with the user data"
        )
