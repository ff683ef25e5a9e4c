"""Status and Events of MachineSets and MachineDeployments, reported where they have changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bus import intents, subjects
from bus.messages import EventIntent, StatusIntent
from bus.transport.connection import Bus
from windowbox.models.objects import Object
from windowbox.models.refs import ObjectRef
from workers.core import reports
from workers.core.recorder import Recorder


class StatusReport:
    """What one run reports about an object."""

    def __init__(self, bus: Bus, ref: ObjectRef, found: Object, recorder: Recorder) -> None:
        self._bus = bus
        self._ref = ref
        self._found = found
        self._recorder = recorder
        self._last: StatusIntent | None = None
        self._sequence = 0
        self.version = found.resource_version
        """Of the object, after what this run has written to it."""
        self.events: list[EventIntent] = []

    async def begin(self) -> None:
        """Read what was reported last: a report that comes later than ours is not overwritten."""
        intent, self._sequence = await reports.last(self._bus, self._ref, self._recorder)
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
                await reports.remind(self._bus, self._ref, self._recorder)
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

        async def act() -> None:
            await intents.report(self._bus, subjects.key(self._ref), intent, self._sequence)

        request = intent.model_dump(mode="json", exclude_defaults=True)
        await self._recorder.call("report", request, act, effect=True)
        return True


def merged(found: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """What a merge patch makes of a mapping whose mappings are replaced as a whole."""
    both = {**found, **patch}
    return {name: value for name, value in both.items() if value is not None}


def same(status: Mapping[str, Any], shown: Mapping[str, Any]) -> bool:
    """Whether all of a status is shown. Zero and missing are the same, as Kubernetes has it."""
    return all((value or None) == (shown.get(name) or None) for name, value in status.items())
