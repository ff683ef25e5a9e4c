"""Reports of changed statuses, and Events, of MachineSets and MachineDeployments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bus.messages import EventIntent, StatusIntent
from windowbox.models.objects import Object
from workers.core.reports import Reports


class StatusReport:
    """The report of one run about an object."""

    def __init__(self, found: Object, reports: Reports) -> None:
        self._found = found
        self._reports = reports
        self._last: StatusIntent | None = None
        self.version = found.resource_version
        """The object's version after the writes of this run."""
        self.events: list[EventIntent] = []

    async def begin(self) -> None:
        """Read the last report: ours is refused if another run reports in between."""
        intent = await self._reports.last()
        self._last = intent if intent and intent.uid == self._found.uid else None

    @property
    def memo(self) -> Mapping[str, Any]:
        """State that the previous run kept for this one."""
        return self._last.memo if self._last else {}

    @property
    def shown(self) -> dict[str, Any]:
        """The status as it will be when the last report is written."""
        return merged(self._found.status, self._last.patch if self._last else {})

    def event(self, type: str, reason: str, note: str) -> None:
        self.events.append(EventIntent.model_validate({"type": type, "reason": reason, "note": note}))

    async def end(self, status: Mapping[str, Any], memo: Mapping[str, Any] | None = None) -> bool:
        """Report this status. False if it was reported before, and is written."""
        kept = dict(self.memo if memo is None else memo)
        reported = same(status, self.shown) and kept == dict(self.memo)
        written = same(status, self._found.status)
        if reported and not self.events:
            if not written and self._last:
                await self._reports.remind()
            return not written
        # Fields that were reported before and are not written yet must not get lost.
        patch = {**(self._last.patch if self._last else {}), **status}
        intent = StatusIntent(
            uid=self._found.uid,
            patch=patch,
            events=tuple(self.events),
            version=self.version,
            shown=same(patch, self._found.status),
            memo=kept,
        )
        await self._reports.send(intent)
        return True


def merged(found: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """The result of a merge patch that replaces inner mappings as a whole."""
    both = {**found, **patch}
    return {name: value for name, value in both.items() if value is not None}


def same(status: Mapping[str, Any], shown: Mapping[str, Any]) -> bool:
    """Whether a status is shown. Zero and missing are equal, as in Go types with `omitempty`."""
    return all((value or None) == (shown.get(name) or None) for name, value in status.items())
