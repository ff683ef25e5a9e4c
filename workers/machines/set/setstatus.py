"""The status of a MachineSet, as a function of its machines. Pure."""

from __future__ import annotations

import dataclasses
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
    listed = []
    for one in sorted(failed, key=lambda one: one.name)[:_MOST_FAILED]:
        last = dict(one.failure or {})
        if len(text := str(last.get("description", ""))) > _LONGEST:
            last["description"] = f"{text[:_LONGEST]}…"
        provider = {"providerID": one.provider_id} if one.provider_id else {}
        listed.append({"name": one.name, "ownerRef": owner.name, "lastOperation": last, **provider})
    # A condition keeps its time and message while neither its status nor its reason changes.
    known = {
        (one.get("type"), one.get("reason")): dict(one)
        for one in mappings(shown.get("machineSetCondition"))
        if one.get("status") == "True"
    }
    new = {"status": "True", "lastTransitionTime": spelled(now)}
    return {
        "observedGeneration": owner.object.generation,
        "replicas": len(machines),
        "fullyLabeledReplicas": setplan.fully_labeled(owner, machines),
        "readyReplicas": sum(one.ready for one in machines),
        "availableReplicas": sum(one.available for one in machines),
        "preservedFailedReplicas": len(preserved),
        "autoPreserveFailedMachineCount": sum(
            one.annotations.get(keys.PRESERVE) == preservation.AUTO for one in machines
        ),
        "failedMachines": listed or None,
        "machineSetCondition": [
            known.get((one.type, one.reason)) or {**dataclasses.asdict(one), **new} for one in conditions
        ]
        or None,
    }
