"""The status of a MachineDeployment, as a function of its MachineSets. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from windowbox.models.extensions import instant, spelled
from windowbox.models.objects import mappings
from workers.machines.deployment.deploymentstate import State
from workers.machines.facts import number

AVAILABLE, PROGRESSING, FROZEN, FAILURE = "Available", "Progressing", "Frozen", "ReplicaFailure"

CREATED = "NewMachineSetCreated"
FOUND = "FoundNewMachineSet"
UPDATED = "MachineSetUpdated"
COMPLETE = "NewMachineSetAvailable"
TIMED_OUT = "ProgressDeadlineExceeded"
PAUSED = "DeploymentPaused"
RESUMED = "DeploymentResumed"
CREATE_ERROR = "MachineSetCreateError"

Json = Mapping[str, Any]
_MOST_FAILED = 100
"""Failed machines that the status lists: etcd limits the size of an object."""
_ORDER = (PROGRESSING, AVAILABLE, FROZEN, FAILURE)


@dataclass(frozen=True)
class Condition:
    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str


def counts(state: State) -> dict[str, Any]:
    """The numbers of the status."""
    available = sum(one.available for one in state.sets)
    return {
        "observedGeneration": state.deployment.generation,
        "replicas": sum(one.existing for one in state.sets),
        "updatedReplicas": state.new.existing if state.new else 0,
        "readyReplicas": sum(one.ready for one in state.sets),
        "availableReplicas": available,
        "preservedFailedReplicas": sum(one.preserved for one in state.sets),
        "unavailableReplicas": max(state.wanted - available, 0),
        "failedMachines": [failed for one in state.sets for failed in one.failures][:_MOST_FAILED] or None,
    }


def complete(state: State) -> bool:
    """Whether all machines have the current template, and are available."""
    counted = counts(state)
    fields = ("updatedReplicas", "replicas", "availableReplicas")
    return all(counted[field] == state.spec.replicas for field in fields)


def available(state: State, counted: Json) -> Condition:
    """The condition Available. Preserved failed machines reduce the number that has to be available."""
    needed = max(state.spec.min_available - counted["preservedFailedReplicas"], 0)
    if counted["availableReplicas"] >= needed:
        reason, message = "MinimumReplicasAvailable", "Deployment has minimum availability."
        return Condition(AVAILABLE, "True", reason, message)
    reason, message = "MinimumReplicasUnavailable", "Deployment does not have minimum availability."
    return Condition(AVAILABLE, "False", reason, message)


def progressing(state: State, counted: Json, shown: Json, now: datetime) -> Condition | None:
    """The condition Progressing; None if it stays as it is."""
    before = condition(shown, PROGRESSING)
    reason = str(before.get("reason", ""))
    what = f'MachineSet "{state.new.name}"' if state.new else f'Machine Deployment "{state.deployment.name}"'
    # A complete roll-out stays complete while its machines are scaled or replaced.
    if reason == COMPLETE and counted["replicas"] == counted["updatedReplicas"]:
        return None
    if complete(state):
        return Condition(PROGRESSING, "True", COMPLETE, f"{what} has successfully progressed.")
    grown = ("updatedReplicas", "readyReplicas", "availableReplicas")
    of_old = [number(of.get("replicas")) - number(of.get("updatedReplicas")) for of in (counted, shown)]
    if of_old[0] < of_old[1] or any(number(counted[name]) > number(shown.get(name)) for name in grown):
        return Condition(PROGRESSING, "True", UPDATED, f"{what} is progressing.")
    if remaining(state, shown, now) == 0:
        return Condition(PROGRESSING, "False", TIMED_OUT, f"{what} has timed out progressing.")
    return None


def remaining(state: State, shown: Json, now: datetime) -> float | None:
    """Seconds until the progress deadline of a roll-out; None without a deadline or a roll-out."""
    before = condition(shown, PROGRESSING)
    since = instant(before.get("lastUpdateTime"))
    if state.spec.deadline is None or since is None or before.get("reason") == COMPLETE:
        return None
    if before.get("reason") == TIMED_OUT:  # until there is progress
        return 0.0
    end = since + timedelta(seconds=state.spec.deadline)
    return max(0.0, (end - now).total_seconds())


def paused(state: State, shown: Json) -> Condition | None:
    """The condition Progressing of a roll-out that is paused or resumed now; None without such a change."""
    reason = condition(shown, PROGRESSING).get("reason")
    if reason == TIMED_OUT:  # a pause does not hide the failure
        return None
    if state.spec.paused and reason != PAUSED:
        return Condition(PROGRESSING, "Unknown", PAUSED, "Deployment is paused")
    if not state.spec.paused and reason == PAUSED:
        return Condition(PROGRESSING, "Unknown", RESUMED, "Deployment is resumed")
    return None


def of_sets(state: State) -> list[Condition]:
    """The conditions that the deployment copies from its sets; those of the newest set come first."""
    found = []
    sets = [state.new, *state.old] if state.new else list(state.old)
    for type_ in (FROZEN, FAILURE):
        shown = [mappings(owner.object.status.get("machineSetCondition")) for owner in sets]
        if first := next((one for listed in shown for one in listed if one.get("type") == type_), None):
            found.append(Condition(type_, "True", str(first.get("reason")), str(first.get("message"))))
    return found


def shown_with(shown: Json, conditions: list[Condition], now: datetime) -> list[Any]:
    """All conditions after these have been set. Those that no set has any longer are left out.

    A condition with the same status and reason keeps its times, but progress renews its update time.
    """
    kept = {type_: dict(found) for type_ in (PROGRESSING, AVAILABLE) if (found := condition(shown, type_))}
    for one in conditions:
        before = condition(shown, one.type)
        same_status = before.get("status") == one.status
        if same_status and before.get("reason") == one.reason:
            kept[one.type] = dict(before)
            if one.reason == UPDATED:  # the deadline counts from the last progress
                kept[one.type] |= {"lastUpdateTime": spelled(now), "message": one.message}
            continue
        since = before.get("lastTransitionTime", spelled(now)) if same_status else spelled(now)
        kept[one.type] = {
            "type": one.type,
            "status": one.status,
            "reason": one.reason,
            "message": one.message,
            "lastUpdateTime": spelled(now),
            "lastTransitionTime": since,
        }
    return [kept[type_] for type_ in _ORDER if type_ in kept]


def condition(shown: Json, type_: str) -> Json:
    """A condition of the status; empty if it is missing."""
    return next((one for one in mappings(shown.get("conditions")) if one.get("type") == type_), {})
