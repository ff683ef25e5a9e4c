"""lastOperation and lastError, while running, on success and failure. Rules S-5, U-1 to U-4, B-1 and D-1."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from windowbox import errors
from windowbox.models.extensions import TIMESTAMP, instant, spelled
from windowbox.models.objects import Object
from workers.core.lifecycle.operations import Flow, Operation, Patch

Conditions = list[dict[str, Any]]

_SKEW = timedelta(minutes=5)
"""The largest clock skew of a client whose timestamp is used."""
_LONGEST, _END = 2000, 500
"""Characters of a description that quotes values of its object, and of its end."""


@dataclass(frozen=True, slots=True)
class OperationTexts:
    """The texts of `description` in one flow."""

    processing: str
    success: str
    error: str
    """The headline: the text of the error follows it."""


@dataclass(frozen=True, slots=True)
class Descriptions:
    """The texts of `description` for one kind."""

    reconcile: OperationTexts
    delete: OperationTexts
    migrate: OperationTexts
    restore: OperationTexts

    def of(self, flow: Flow) -> OperationTexts:
        match flow:
            case Flow.DELETE:
                return self.delete
            case Flow.MIGRATE:
                return self.migrate
            case Flow.RESTORE:
                return self.restore
            case _:
                return self.reconcile


def descriptions_for(kind: str, *, deleted: str = "deleted") -> Descriptions:
    """The default texts of a kind. For some the contract has another word for deletions."""

    def phrases(doing: str, done: str) -> OperationTexts:
        return OperationTexts(
            f"{doing} the {kind}", f"Successfully {done} {kind}", f"Error {doing.lower()} {kind}"
        )

    return Descriptions(
        reconcile=phrases("Reconciling", "reconciled"),
        delete=phrases("Deleting", deleted),
        migrate=phrases("Migrating", "migrated"),
        restore=phrases("Restoring", "restored"),
    )


def processing(operation: Operation, phrases: OperationTexts, now: datetime) -> Patch:
    """The status of a run in progress. It keeps the last error and its generation."""
    return {"lastOperation": _last_operation(operation, "Processing", 1, phrases.processing, now)}


def waiting(operation: Operation, phrases: OperationTexts, what: str, now: datetime) -> Patch:
    """The status of a run that waits for other controllers."""
    description = _cut(f"{phrases.processing.rstrip('.')}: {what}")
    return {
        "lastOperation": _last_operation(operation, "Processing", 50, description, now),
        "lastError": None,
    }


def succeeded(operation: Operation, phrases: OperationTexts, generation: int, now: datetime) -> Patch:
    return {
        "observedGeneration": generation,
        "lastOperation": _last_operation(operation, "Succeeded", 100, phrases.success, now),
        "lastError": None,
    }


def failed(
    operation: Operation, phrases: OperationTexts, error: BaseException, generation: int, now: datetime
) -> Patch:
    headline = getattr(error, "headline", "") or phrases.error
    said = f"{headline}: {text(error)}"
    # ASCII only: "ß" would become two letters.
    description = _cut(said[:1].upper() + said[1:] if said[:1].isascii() else said)
    # None removes the codes of the previous error, which a merge patch would keep.
    last_error = {
        "description": description,
        "codes": errors.codes(error) or None,
        "lastUpdateTime": spelled(now),
    }
    return {
        "observedGeneration": generation,
        "lastOperation": _last_operation(operation, "Error", 50, description, now),
        "lastError": last_error,
    }


def report_time(obj: Object, now: datetime) -> datetime:
    """The time to report for a run on `obj`: now, but not earlier than the client's timestamp.

    Otherwise a client whose clock is ahead would take the report for an older one.
    """
    requested_at = instant(obj.annotations.get(TIMESTAMP))
    return requested_at if requested_at is not None and now < requested_at <= now + _SKEW else now


def text(error: BaseException) -> str:
    """The text of an error, or its class name if it has none; of a group, all of them."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(text(member) for member in error.exceptions)
    return str(error) or type(error).__name__


def _cut(description: str) -> str:
    """A description of bounded length, without its middle: the remedy is at the end."""
    if len(description) <= _LONGEST:
        return description
    return f"{description[: _LONGEST - _END]} … {description[-_END:]}"


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition without its times, which depend on the previous one."""

    type: str
    status: str
    reason: str
    message: str
    codes: tuple[str, ...] = ()


def with_condition(conditions: Iterable[Mapping[str, Any]], new: Condition, now: datetime) -> Conditions:
    """`conditions` with `new` in the place of the one of its type, or at the end."""
    before = [dict(condition) for condition in conditions]
    for place, old in enumerate(before):
        if old.get("type") == new.type:
            before[place] = _renewed(old, new, spelled(now))
            return before
    return [*before, _renewed({}, new, spelled(now))]


_CREATED = Condition(
    "Created", "True", "Success", "Record was created successfully in infrastructure at least once"
)
_NOT_CREATED = Condition("Created", "False", "Error", "Error on initial record creation in infrastructure")


def created_condition(
    conditions: Iterable[Mapping[str, Any]], flow: Flow, succeeded: bool, now: datetime
) -> Conditions:
    """`conditions` after a run. `Created`, whether the record ever existed, stays True."""
    found = [dict(condition) for condition in conditions]
    if flow not in (Flow.RECONCILE, Flow.RESTORE):
        return found
    if succeeded:
        return with_condition(found, _CREATED, now)
    known = any(condition.get("type") == "Created" for condition in found)
    return found if known else with_condition(found, _NOT_CREATED, now)


def never_created(conditions: Iterable[Mapping[str, Any]]) -> bool:
    """Whether the record was never created, so that there is nothing to delete."""
    created = next((one for one in conditions if one.get("type") == "Created"), {})
    return created.get("status") == "False"


def _renewed(old: Mapping[str, Any], condition: Condition, now: str) -> dict[str, Any]:
    new: dict[str, Any] = {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason or "Unspecified",
        "message": condition.message or "No message given.",
    }
    if condition.codes:
        new["codes"] = list(condition.codes)
    same_status = old.get("status") == condition.status
    same_words = all(old.get(field) == new.get(field) for field in ("reason", "message", "codes"))
    new["lastTransitionTime"] = old.get("lastTransitionTime", now) if same_status else now
    new["lastUpdateTime"] = old.get("lastUpdateTime", now) if same_words else now
    return new


def _last_operation(
    operation: Operation, state: str, progress: int, description: str, now: datetime
) -> dict[str, Any]:
    return {
        "type": str(operation),
        "state": state,
        "progress": progress,
        "description": description,
        "lastUpdateTime": spelled(now),
    }
