"""Health checks: pure functions of the objects that they look at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from windowbox.models.extensions import instant
from windowbox.models.objects import Json, Object, mapping, mappings
from workers.core.lifecycle import statuses
from workers.core.lifecycle.statuses import Condition
from workers.core.owned import managedresources

_AVAILABLE = ("Available", "True")
"""The condition that has to exist."""
_OPTIONAL = (("Progressing", "True"), ("ReplicaFailure", "False"))


@dataclass(frozen=True)
class Passed:
    """Healthy."""


@dataclass(frozen=True)
class Unsuccessful:
    detail: str
    codes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Progressing:
    """Not healthy yet; a failure only after the threshold."""

    detail: str
    codes: tuple[str, ...] = ()
    threshold: timedelta | None = None


@dataclass(frozen=True)
class Errored:
    """The check itself failed."""

    detail: str


Result = Passed | Unsuccessful | Progressing | Errored


def nodes(deployments: Iterable[Object]) -> Result:
    """Whether the MachineDeployments are healthy. Counts of nodes are gardenlet's own check."""
    found = sorted(deployments, key=lambda one: one.name)
    for machine, reason in failed_machines(found):
        return Unsuccessful(f'machine "{machine}" failed: {reason}')
    for one in found:
        if reason := unhealthy_machines(one):
            return Unsuccessful(
                f'machine deployment "{one.name}" in namespace "{one.namespace}" is unhealthy: {reason}'
            )
    return Passed()


def managed_resource(namespace: str, name: str, found: Object | None) -> Result:
    """Whether the objects of the ManagedResource are applied and healthy."""
    what = f'managed resource "{name}" in namespace "{namespace}"'
    if found is None:
        return Unsuccessful(f"{what} not found")
    if problem := managedresources.unhealthy(found):
        return Unsuccessful(f"{what} is unhealthy: {problem}", managedresources.problem_codes(problem))
    return Passed()


def deployment(namespace: str, name: str, found: Object | None) -> Result:
    what = f'deployment "{name}" in namespace "{namespace}"'
    if found is None:
        return Unsuccessful(f"{what} not found")
    if problem := _problem(found, *_OPTIONAL):
        return Unsuccessful(f"{what} is unhealthy: {problem}")
    return Passed()


def unhealthy_machines(deployment: Object) -> str:
    """Why a MachineDeployment is not healthy; empty if it is."""
    return _problem(deployment, *_OPTIONAL, ("Frozen", "False"))


def failed_machines(deployments: Iterable[Object]) -> list[tuple[str, str]]:
    """The machines that have failed, each with the reason."""
    return [
        (str(one.get("name", "")), str(mapping(one.get("lastOperation")).get("description", "")))
        for deployment in deployments
        for one in mappings(deployment.status.get("failedMachines"))
    ]


def _problem(found: Object, *optional: tuple[str, str]) -> str:
    observed = found.status.get("observedGeneration") or 0
    if observed < found.generation:
        return f"observed generation outdated ({observed}/{found.generation})"
    conditions = {one.get("type"): one for one in mappings(found.status.get("conditions"))}
    for type_, status in (_AVAILABLE, *optional):
        condition = conditions.get(type_)
        if condition is None and type_ == _AVAILABLE[0]:
            return f'condition "{type_}" is missing'
        if condition is not None and condition.get("status") != status:
            return f"{str(condition.get('message', '')).strip('.')} ({condition.get('reason', '')})"
    return ""


CONTROL_PLANE_HEALTHY = "ControlPlaneHealthy"
EVERY_NODE_READY = "EveryNodeReady"
SYSTEM_COMPONENTS_HEALTHY = "SystemComponentsHealthy"

SYNC_SECONDS = 30.0
"""Seconds until checks are repeated that no event triggers."""
_SUCCESSFUL = "HealthCheckSuccessful"
_HEADINGS = {
    Errored: "Unable to execute check(s): ",
    Unsuccessful: "Failed check(s): ",
    Progressing: "Progressing check(s): ",
}


def conditions_patch(
    found: Object, results: Mapping[str, Sequence[Result]], now: datetime, *, hibernated: bool
) -> dict[str, Any]:
    """The conditions of a status; those of other types stay."""
    known: list[Any] = list(mappings(found.status.get("conditions")))
    for type_, checked in results.items():
        old: Json = next((one for one in known if one.get("type") == type_), {})
        said = asleep(type_) if hibernated else condition(type_, checked, old, now)
        known = statuses.with_condition(known, said, now)
    return {"conditions": known}


def asleep(type_: str) -> Condition:
    """The condition of a hibernated Shoot, whose checks always pass."""
    return Condition(type_, "True", _SUCCESSFUL, "Shoot is hibernated")


def condition(type_: str, results: Sequence[Result], old: Json, now: datetime) -> Condition:
    """The worst result decides; `old` is the condition so far."""
    errored = [one for one in results if isinstance(one, Errored)]
    unsuccessful = [one for one in results if isinstance(one, Unsuccessful)]
    progressing = [one for one in results if isinstance(one, Progressing)]
    details = _details((errored, unsuccessful, progressing))
    failing: list[Unsuccessful | Progressing] = [*unsuccessful, *progressing]
    codes = tuple(dict.fromkeys(code for one in failing for code in one.codes))
    if errored:
        checks = "check" if len(errored) == 1 else "checks"
        text = f"failed to execute {len(errored)} health {checks}: {details}"
        return Condition(type_, "Unknown", "ConditionCheckError", text)
    if not unsuccessful and not progressing:
        return Condition(type_, "True", _SUCCESSFUL, "All health checks successful")
    if not unsuccessful and _may_progress(progressing, old, now):
        return Condition(type_, "Progressing", "HealthCheckProgressing", details, codes)
    return Condition(type_, "False", "HealthCheckUnsuccessful", details, codes)


def requeue_after(results: Mapping[str, Sequence[Result]]) -> float | None:
    """Seconds until the next check without an event; None if events trigger all further checks."""
    waiting = any(isinstance(one, Errored | Progressing) for checked in results.values() for one in checked)
    return SYNC_SECONDS if waiting else None


def _may_progress(progressing: Iterable[Progressing], old: Json, now: datetime) -> bool:
    """Whether the threshold has not passed yet. A failed condition stays failed until it succeeds."""
    thresholds = [one.threshold for one in progressing if one.threshold is not None]
    status = old.get("status")
    if not thresholds or status == "False":
        return False
    if status in (None, "True"):
        return True
    since = instant(str(old.get("lastTransitionTime")))
    return since is not None and now - since <= min(thresholds)


def _details(sections: Sequence[Sequence[Errored | Unsuccessful | Progressing]]) -> str:
    """All details. The sections have headings if there are several."""
    filled = [section for section in sections if section]
    texts = []
    for section in filled:
        entries = [one.detail.rstrip(".") + "." for one in section]
        numbered = [f"{number}) {entry}" for number, entry in enumerate(entries, 1)]
        heading = _HEADINGS[type(section[0])] if len(filled) > 1 else ""
        texts.append(heading + " ".join(numbered if len(entries) > 1 else entries))
    return " ".join(texts)
