"""Health conditions from the results of checks: one per type. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from windowbox.models.extensions import instant
from windowbox.models.objects import Json, Object, mappings
from workers.core.health.checks import Errored, Progressing, Result, Unsuccessful
from workers.core.lifecycle import statuses
from workers.core.lifecycle.statuses import Condition

CONTROL_PLANE_HEALTHY = "ControlPlaneHealthy"
EVERY_NODE_READY = "EveryNodeReady"
SYSTEM_COMPONENTS_HEALTHY = "SystemComponentsHealthy"

SYNC_SECONDS = 30.0
"""After which checks that tell of no event are made again."""
_SUCCESSFUL = "HealthCheckSuccessful"
_HEADINGS = {
    Errored: "Unable to execute check(s): ",
    Unsuccessful: "Failed check(s): ",
    Progressing: "Progressing check(s): ",
}


def patch(
    found: Object, results: Mapping[str, Sequence[Result]], now: datetime, *, hibernated: bool
) -> dict[str, Any]:
    """The part of a status with the conditions, those of other types as they are."""
    known: list[Any] = list(mappings(found.status.get("conditions")))
    for type_, checked in results.items():
        old: Json = next((one for one in known if one.get("type") == type_), {})
        said = asleep(type_) if hibernated else condition(type_, checked, old, now)
        known = statuses.with_condition(known, said, now)
    return {"conditions": known}


def asleep(type_: str) -> Condition:
    """Of a Shoot that is hibernated nothing is expected."""
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
    """When to check again though nothing has changed; None if events tell of all that counts."""
    waiting = any(isinstance(one, Errored | Progressing) for checked in results.values() for one in checked)
    return SYNC_SECONDS if waiting else None


def _may_progress(progressing: Iterable[Progressing], old: Json, now: datetime) -> bool:
    """Whether it is too early to speak of a failure. What has failed stays so until it succeeds."""
    thresholds = [one.threshold for one in progressing if one.threshold is not None]
    status = old.get("status")
    if not thresholds or status == "False":
        return False
    if status in (None, "True"):
        return True
    since = instant(str(old.get("lastTransitionTime")))
    return since is not None and now - since <= min(thresholds, default=timedelta())


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
