"""The status of a MachineSet, as a function of its machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from windowbox.models import machinekeys as keys
from windowbox.models.extensions import spelled
from windowbox.models.objects import mapping
from workers.machines import preservation
from workers.machines.facts import MachineFacts, strings
from workers.machines.sets import MachineSet

FAILURE = "ReplicaFailure"
FROZEN = "Frozen"
_MOST_FAILED = 100
"""Failed machines that the status lists, so that it fits the API however many there are."""
_LONGEST = 500
"""Characters of what it says of each."""


@dataclass(frozen=True)
class Condition:
    """A condition that is True; one that no longer holds is left out."""

    type: str
    reason: str
    message: str


def status(
    owner: MachineSet,
    machines: Sequence[MachineFacts],
    conditions: Sequence[Condition],
    shown: Mapping[str, Any],
    now: datetime,
) -> dict[str, Any]:
    """The whole status but its last operation. `shown` is the status so far: conditions keep their times."""
    labels = strings(mapping(mapping(owner.template.get("metadata")).get("labels")))
    failed = [one for one in machines if one.failure is not None and not _preserved(one)]
    return {
        "observedGeneration": owner.object.generation,
        "replicas": len(machines),
        "fullyLabeledReplicas": sum(labels.items() <= dict(one.labels).items() for one in machines),
        "readyReplicas": sum(one.ready for one in machines),
        "availableReplicas": sum(one.available for one in machines),
        "preservedFailedReplicas": sum(_preserved(one) for one in machines),
        "autoPreserveFailedMachineCount": sum(
            one.annotations.get(keys.PRESERVE) == preservation.AUTO for one in machines
        ),
        "failedMachines": [_summary(one, owner) for one in _listed(failed)] or None,
        "machineSetCondition": [_shown(one, shown, now) for one in conditions] or None,
    }


def _preserved(machine: MachineFacts) -> bool:
    return machine.failed and bool(machine.preserved_until)


def _listed(failed: Sequence[MachineFacts]) -> list[MachineFacts]:
    return sorted(failed, key=lambda one: one.name)[:_MOST_FAILED]


def _summary(machine: MachineFacts, owner: MachineSet) -> dict[str, Any]:
    last = dict(machine.failure or {})
    if len(text := str(last.get("description", ""))) > _LONGEST:
        last["description"] = f"{text[:_LONGEST]}…"
    summary = {"name": machine.name, "ownerRef": owner.name, "lastOperation": last}
    return summary | ({"providerID": machine.provider_id} if machine.provider_id else {})


def _shown(condition: Condition, shown: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """A condition as it was, where neither status nor reason have changed."""
    before = shown.get("machineSetCondition")
    for one in before if isinstance(before, list) else ():
        same = mapping(one).get("type") == condition.type and one.get("reason") == condition.reason
        if same and one.get("status") == "True":
            return dict(one)
    return {
        "type": condition.type,
        "status": "True",
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": spelled(now),
    }
