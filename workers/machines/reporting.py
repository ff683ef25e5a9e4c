"""Status and Events of MachineSets and MachineDeployments, reported where they have changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bus.messages import EventIntent, StatusIntent
from windowbox.models.objects import Object
from workers.core.reports import Reports


class StatusReport:
    """What one run reports about an object."""

    def __init__(self, found: Object, reports: Reports) -> None:
        self._found = found
        self._reports = reports
        self._last: StatusIntent | None = None
        self.version = found.resource_version
        """Of the object, after what this run has written to it."""
        self.events: list[EventIntent] = []

    async def begin(self) -> None:
        """Read what was reported last: a report that comes later than ours is not overwritten."""
        intent = await self._reports.last()
        self._last = intent if intent and intent.uid == self._found.uid else None

    @property
    def memo(self) -> Mapping[str, Any]:
        """What the run before left for this one."""
        return self._last.memo if self._last else {}

    @property
    def shown(self) -> dict[str, Any]:
        """The status as it is, or will be when the last report is written."""
        return merged(self._found.status, self._last.patch if self._last else {})

    def event(self, type: str, reason: str, note: str) -> None:
        self.events.append(EventIntent.model_validate({"type": type, "reason": reason, "note": note}))

    async def end(self, status: Mapping[str, Any], memo: Mapping[str, Any] | None = None) -> bool:
        """Report this status. False if everything of it is reported, and written."""
        kept = dict(self.memo if memo is None else memo)
        reported = same(status, self.shown) and kept == dict(self.memo)
        written = same(status, self._found.status)
        if reported and not self.events:
            if not written and self._last:
                await self._reports.remind()
            return not written
        # What was reported before and is not written yet must not get lost.
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
    """What a merge patch makes of a mapping whose mappings are replaced as a whole."""
    both = {**found, **patch}
    return {name: value for name, value in both.items() if value is not None}


def same(status: Mapping[str, Any], shown: Mapping[str, Any]) -> bool:
    """Whether all of a status is shown. Zero and missing are the same, as Kubernetes has it."""
    return all((value or None) == (shown.get(name) or None) for name, value in status.items())
