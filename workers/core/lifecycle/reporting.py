"""The reports of a run: status intents, checked against the previous report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bus.messages import EventIntent, StatusIntent
from windowbox.errors import WindowboxError
from windowbox.models.extensions import in_order
from windowbox.models.objects import Object, mappings, merge
from workers.core.lifecycle.operations import Patch
from workers.core.reports import Reports


@dataclass
class Reporter:
    """Publishes the reports of one run about one object."""

    reports: Reports
    object: Object
    """The version to report on; `take` sets another one."""
    has_reported: bool = False
    asked: bool = False
    """Whether a client has asked for this run: it gets a report, even an unchanged one."""

    conditions: frozenset[str] = field(init=False, default=frozenset())
    """The types of the conditions reported so far; other controllers write further ones."""
    memo: dict[str, Any] = field(init=False, default_factory=dict)
    """State for the next run, stored with each report."""

    def __post_init__(self) -> None:
        self._recall()

    def take(self, object: Object) -> None:
        """Report on this version from now on. It may be of another object, which has the name now."""
        before, self.object = self.object, object
        if object.uid != before.uid:
            self._recall()

    def _recall(self) -> None:
        last = self.last
        self.conditions = frozenset(last.conditions or () if last else ())
        # The run holds this very dictionary.
        self.memo.clear()
        self.memo.update(last.memo if last else {})

    @property
    def last(self) -> StatusIntent | None:
        """The last report; None if it is about a former object of the name."""
        last = self.reports.latest
        return last if last and last.uid == self.object.uid else None

    async def remember(self) -> None:
        """Store the memo now, with the last report unchanged."""
        await self.reports.remember(self.object.uid, self.memo)

    async def report(self, patch: Patch, event: EventIntent | None = None, *, effect: bool = True) -> None:
        patch = in_order(patch, self.object.status)
        known = mappings(self.object.status.get("conditions"))
        self.conditions |= {str(one.get("type")) for one in patch.get("conditions") or [] if one not in known}
        intent = StatusIntent(
            uid=self.object.uid,
            patch=patch,
            events=(event,) if event else (),
            version=self.object.resource_version,
            conditions=tuple(sorted(self.conditions)) if "conditions" in patch else None,
        )
        await self.reports.send(intent, memo=self.memo, effect=effect)
        self.has_reported = True


def same_failure(object: Object, patch: Patch) -> bool:
    """Whether the status already shows this failure, so that no report is needed."""
    last_error, new_error = object.status.get("lastError") or {}, patch["lastError"]
    return (
        object.last_operation.get("state") == "Error"
        and object.last_operation.get("type") == patch["lastOperation"]["type"]
        and object.status.get("observedGeneration") == patch["observedGeneration"]
        and last_error.get("description") == new_error["description"]
        and (last_error.get("codes") or None) == (new_error["codes"] or None)
    )


def adds_status(error: WindowboxError, object: Object) -> bool:
    """Whether the error carries status fields that the object does not have."""
    return bool(merge(object.status, error.status) != object.status)
