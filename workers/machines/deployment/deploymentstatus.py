"""The status of a MachineDeployment, as a function of its MachineSets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from windowbox.models.extensions import instant, spelled
from windowbox.models.objects import mappings
from workers.machines.deployment.state import State
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
"""Failed machines that the status lists, so that it fits the API however many there are."""
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


def complete(state: State, counted: Json) -> bool:
    """Whether all machines are of the new template, and available."""
    fields = ("updatedReplicas", "replicas", "availableReplicas")
    return all(counted[field] == state.spec.replicas for field in fields)


def available(state: State, counted: Json) -> Condition:
    """Machines that are preserved although they failed count as if nobody had asked for them."""
    needed = max(state.spec.min_available - counted["preservedFailedReplicas"], 0)
    if counted["availableReplicas"] >= needed:
        return Condition(
            AVAILABLE, "True", "MinimumReplicasAvailable", "Deployment has minimum availability."
        )
    return Condition(
        AVAILABLE, "False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability."
    )


def progressing(state: State, counted: Json, shown: Json, now: datetime) -> Condition | None:
    """How the roll-out goes on; None if the condition stays as it is."""
    before = condition(shown, PROGRESSING)
    reason = str(before.get("reason", ""))
    what = f'MachineSet "{state.new.name}"' if state.new else f'Machine Deployment "{state.deployment.name}"'
    if reason == COMPLETE and counted["replicas"] == counted["updatedReplicas"]:
        return None
    if complete(state, counted):
        return Condition(PROGRESSING, "True", COMPLETE, f"{what} has successfully progressed.")
    if _has_progressed(counted, shown):
        return Condition(PROGRESSING, "True", UPDATED, f"{what} is progressing.")
    if remaining(state, shown, now) == 0:
        return Condition(PROGRESSING, "False", TIMED_OUT, f"{what} has timed out progressing.")
    return None


def remaining(state: State, shown: Json, now: datetime) -> float | None:
    """Seconds until a roll-out has taken too long; None if that cannot happen."""
    before = condition(shown, PROGRESSING)
    since = instant(before.get("lastUpdateTime"))
    if state.spec.deadline is None or since is None or before.get("reason") == COMPLETE:
        return None
    if before.get("reason") == TIMED_OUT:
        return 0.0
    end = since + timedelta(seconds=state.spec.deadline)
    return max(0.0, (end - now).total_seconds())


def paused(state: State, shown: Json) -> Condition | None:
    """That the roll-out has been paused, or goes on."""
    reason = condition(shown, PROGRESSING).get("reason")
    if reason == TIMED_OUT:
        return None
    if state.spec.paused and reason != PAUSED:
        return Condition(PROGRESSING, "Unknown", PAUSED, "Deployment is paused")
    if not state.spec.paused and reason == PAUSED:
        return Condition(PROGRESSING, "Unknown", RESUMED, "Deployment is resumed")
    return None


def of_sets(state: State) -> list[Condition]:
    """Conditions that are there because a set has them."""
    found = []
    for type_ in (FROZEN, FAILURE):
        sets = [state.new, *state.old] if state.new else list(state.old)
        shown = [owner.object.status.get("machineSetCondition") for owner in sets]
        conditions = [one for found_there in shown for one in _of_type(found_there, type_)]
        if conditions:
            said = conditions[0]
            found.append(Condition(type_, "True", str(said.get("reason")), str(said.get("message"))))
    return found


def shown_with(shown: Json, conditions: list[Condition], now: datetime, *, renew: bool) -> list[Any]:
    """The conditions after these have been set; those that sets have no longer are left out.

    One that is said again keeps its times; with `renew`, progress is noted anew.
    """
    kept = {type_: dict(found) for type_ in (PROGRESSING, AVAILABLE) if (found := condition(shown, type_))}
    for one in conditions:
        before = condition(shown, one.type)
        if before.get("status") == one.status and before.get("reason") == one.reason:
            kept[one.type] = dict(before)
            if renew and one.reason == UPDATED:
                kept[one.type] |= {"lastUpdateTime": spelled(now), "message": one.message}
            continue
        same_status = before.get("status") == one.status
        kept[one.type] = {
            "type": one.type,
            "status": one.status,
            "reason": one.reason,
            "message": one.message,
            "lastUpdateTime": spelled(now),
            "lastTransitionTime": before.get("lastTransitionTime", spelled(now))
            if same_status
            else spelled(now),
        }
    return [kept[type_] for type_ in _ORDER if type_ in kept]


def condition(shown: Json, type_: str) -> Mapping[str, Any]:
    """A condition as it is; empty if it is not there."""
    return next(iter(_of_type(shown.get("conditions"), type_)), {})


def _has_progressed(counted: Json, shown: Json) -> bool:
    def old(of: Json) -> int:
        return number(of.get("replicas")) - number(of.get("updatedReplicas"))

    grown = ("updatedReplicas", "readyReplicas", "availableReplicas")
    return old(counted) < old(shown) or any(
        number(counted.get(name)) > number(shown.get(name)) for name in grown
    )


def _of_type(conditions: object, type_: str) -> list[Json]:
    return [one for one in mappings(conditions) if one.get("type") == type_]
