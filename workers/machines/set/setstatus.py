"""The status of a MachineSet, as a function of its machines. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from windowbox.models import machinekeys as keys
from windowbox.models.extensions import spelled
from windowbox.models.objects import mappings
from workers.machines import preservation
from workers.machines.facts import MachineFacts
from workers.machines.set import setplan
from workers.machines.set.setplan import Limits
from workers.machines.sets import MachineSet

FAILURE = "ReplicaFailure"
FROZEN = "Frozen"
_MOST_FAILED = 100
"""Failed machines that the status lists: etcd limits the size of an object."""
_LONGEST = 500
"""Characters of the description of each."""


@dataclass(frozen=True)
class Condition:
    """A condition that is True; a condition that no longer holds is left out."""

    type: str
    reason: str
    message: str


def frozen(owner: MachineSet, count: int, limit: Limits) -> Condition:
    """The condition of a set that is frozen, because it has so many machines."""
    message = (
        f"The number of machines backing MachineSet: {owner.name} is {count} >= {limit.upper} "
        "which is the Max-ScaleUp-Limit"
    )
    return Condition(FROZEN, "OverShootingReplicaCount", message)


def status(
    owner: MachineSet,
    machines: Sequence[MachineFacts],
    conditions: Sequence[Condition],
    shown: Mapping[str, Any],
    now: datetime,
) -> dict[str, Any]:
    """The whole status but its last operation. `shown` is the status so far: conditions keep their times."""
    preserved = {one.uid for one in machines if one.failed and one.preserved_until}
    failed = [one for one in machines if one.failure is not None and one.uid not in preserved]
    listed = sorted(failed, key=lambda one: one.name)[:_MOST_FAILED]
    auto = sum(one.annotations.get(keys.PRESERVE) == preservation.AUTO for one in machines)
    return {
        "observedGeneration": owner.object.generation,
        "replicas": len(machines),
        "fullyLabeledReplicas": setplan.fully_labeled(owner, machines),
        "readyReplicas": sum(one.ready for one in machines),
        "availableReplicas": sum(one.available for one in machines),
        "preservedFailedReplicas": len(preserved),
        "autoPreserveFailedMachineCount": auto,
        "failedMachines": [_summary(one, owner) for one in listed] or None,
        "machineSetCondition": [_shown(one, shown, now) for one in conditions] or None,
    }


def _summary(machine: MachineFacts, owner: MachineSet) -> dict[str, Any]:
    last = dict(machine.failure or {})
    if len(text := str(last.get("description", ""))) > _LONGEST:
        last["description"] = f"{text[:_LONGEST]}…"
    summary = {"name": machine.name, "ownerRef": owner.name, "lastOperation": last}
    return summary | ({"providerID": machine.provider_id} if machine.provider_id else {})


def _shown(condition: Condition, shown: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """The condition as it was, if neither its status nor its reason has changed."""
    for one in mappings(shown.get("machineSetCondition")):
        same = one.get("type") == condition.type and one.get("reason") == condition.reason
        if same and one.get("status") == "True":
            return dict(one)
    return {
        "type": condition.type,
        "status": "True",
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": spelled(now),
    }
