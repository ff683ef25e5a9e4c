"""The reports of a run: status intents, checked against the previous report."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from bus.messages import EventIntent, StatusIntent
from windowbox.errors import WindowboxError
from windowbox.models.extensions import reported_at, spelled
from windowbox.models.objects import Object, mappings, merge
from windowbox.models.refs import ObjectRef
from workers.core.lifecycle.operations import Patch
from workers.core.lifecycle.world import World
from workers.core.recorder import Recorder


@dataclass
class Reporter:
    """Publishes the reports of one run. Each expects that no other process has reported since."""

    world: World
    ref: ObjectRef
    recorder: Recorder
    object: Object
    sequence: int
    last: StatusIntent | None = None
    """The last report; None if it is about a former object of the name."""
    has_reported: bool = False
    asked: bool = False
    """Whether a client has asked for this run: it gets a report, even an unchanged one."""

    conditions: frozenset[str] = field(init=False)
    """The types of the conditions reported so far; other controllers write further ones."""
    memo: dict[str, Any] = field(init=False)
    """State for the next run, stored with each report."""
    _sending: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        if self.last and self.last.uid != self.object.uid:
            self.last = None
        self.conditions = frozenset(self.last.conditions or () if self.last else ())
        self.memo = dict(self.last.memo if self.last else {})

    def take(self, object: Object) -> None:
        """Use this version for further reports; it may be a new object of the same name."""
        if object.uid != self.object.uid:
            self.last = None
            self.memo.clear()
        self.object = object

    @property
    def memo_changed(self) -> bool:
        """Whether the last report stores an outdated memo. Without one, the next report is early enough."""
        return self.last is not None and self.last.memo not in ({}, self.memo)

    async def remember(self) -> None:
        """Store the memo now, with the last report unchanged."""

        async def act() -> None:
            # Never cancelled: after a report that was cut off, the next expected sequence is unknown.
            keeping = asyncio.create_task(self._keep(None, self.world.keep), name=f"memo {self.ref}")
            try:
                await asyncio.shield(keeping)
            except asyncio.CancelledError:
                await asyncio.wait([keeping])
                if not keeping.cancelled():
                    keeping.exception()
                raise

        await self.recorder.call("remember", self.memo, act)

    async def report(self, patch: Patch, event: EventIntent | None = None, *, effect: bool = True) -> None:
        version, patch = self.object.resource_version, self._in_order(patch)
        events = (event,) if event else ()
        self.conditions |= _changed_conditions(self.object, patch)
        intent = StatusIntent(
            uid=self.object.uid,
            patch=patch,
            events=events,
            version=version,
            conditions=tuple(sorted(self.conditions)) if "conditions" in patch else None,
        )

        async def act() -> None:
            await self._keep(intent, self.world.report)

        # A replay compares the report without the version.
        await self.recorder.call(
            "report",
            intent.model_dump(exclude={"version", "conditions"}, exclude_defaults=True),
            act,
            effect=effect,
        )
        self.has_reported = True

    async def _keep(
        self,
        intent: StatusIntent | None,
        publish: Callable[[ObjectRef, StatusIntent, int], Awaitable[int]],
    ) -> None:
        """Publish the intent, or the last one once more, with the current memo."""
        async with self._sending:
            intent = intent or self.last
            if intent is not None:
                intent = intent.model_copy(update={"memo": dict(self.memo)})
                self.sequence = await publish(self.ref, intent, self.sequence)
                self.last = intent

    def _in_order(self, patch: Patch) -> Patch:
        """The patch with a time that is not before the previous report's.

        That one may come from a machine whose clock is ahead: the order on the bus counts.
        """
        last, ours = reported_at(self.object.status), reported_at(patch)
        if last is None or ours is None or ours >= last:
            return patch
        return {**patch, "lastOperation": {**patch["lastOperation"], "lastUpdateTime": spelled(last)}}


def _changed_conditions(object: Object, patch: Patch) -> frozenset[str]:
    """The types of the conditions in the patch that differ from the object's."""
    known = mappings(object.status.get("conditions"))
    return frozenset(str(one.get("type")) for one in patch.get("conditions") or [] if one not in known)


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
