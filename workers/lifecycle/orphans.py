"""Orphans: objects that are gone although no Delete run has completed. What was made for them is removed.

The API server's DELETE may read an object before our finalizer is on it and remove it afterwards, finalizer
and all (kubernetes/kubernetes#77988). The bus then announces an end without a deletionTimestamp, while a run
has acted already. The object's last version is kept beside its report until a run has cleaned up. The last
user of something shared is kept likewise, deleted or not.
"""

from __future__ import annotations

import asyncio
import logging

from bus.messages import StatusIntent, Wish
from windowbox.errors import PermanentError, TransientError, Waiting
from windowbox.models.objects import Object
from windowbox.models.refs import ObjectRef
from windowbox.telemetry import metrics
from workers.lifecycle import predicates
from workers.lifecycle.kinds import Actuator, Kind, Need, Run
from workers.lifecycle.operations import Operation
from workers.lifecycle.predicates import Scope
from workers.lifecycle.world import World
from workers.recorder import Recorder

logger = logging.getLogger(__name__)

_MAKING = (Operation.CREATE, Operation.RECONCILE, Operation.RESTORE)
_MAX_ATTEMPTS = 18
"""After these, some twenty minutes, what cannot be removed is left behind."""


def is_orphan(last: Object, finalizer: str, reported: StatusIntent | None) -> bool:
    """Whether an object may have left something behind that was like `last` when it was seen last."""
    if last.deleting:
        return False  # only a Delete run, or a person who insisted, takes the finalizer off
    report = reported.patch.get("lastOperation", {}) if reported and reported.uid == last.uid else {}
    if (report.get("type"), report.get("state")) == (Operation.MIGRATE, "Succeeded"):
        return False  # handed over: what was made for it is another seed's now
    if finalizer in last.finalizers:
        return True
    # The watch may have missed the version that had it: then it has not seen what was reported, either.
    if reported is None or reported.uid != last.uid:
        return False
    unseen = str(last.last_operation.get("lastUpdateTime", "")) < str(report.get("lastUpdateTime", ""))
    return unseen and report.get("type") in _MAKING


class OrphanCleanup:
    """Cleans up after the orphans of one name, before anything else is done for that name."""

    def __init__(self, kind: Kind, actuator: Actuator, scope: Scope, world: World) -> None:
        self._kind = kind
        self._actuator = actuator
        self._scope = scope
        self._world = world

    async def run(
        self, ref: ObjectRef, wish: Wish, recorder: Recorder, reported: StatusIntent, sequence: int
    ) -> int:
        """Remove what `reported.orphans` have left. Returns the sequence that the next report must expect."""
        live = await self._world.live(ref, recorder)
        successor = (
            live
            if live and predicates.responsible(self._kind.without_unknown_operation(live), self._scope)
            else None
        )
        shoot = None
        if self._kind.shoot is not Need.NEVER:
            shoot, _ = await self._world.shoot(ref, recorder, required=self._kind.shoot is Need.REQUIRED)
        for orphan in map(Object, reported.orphans):
            if live and live.uid == orphan.uid:
                continue  # the bus was mistaken
            run = Run(ref, orphan, shoot, recorder)
            try:
                await self._clean_up(run, successor)
                if not orphan.deleting:
                    metrics.orphans.labels(self._kind.pool).inc()
            except (TransientError, PermanentError) as error:
                # A new object of the name must not wait for what a person has to correct in the old one.
                final = isinstance(error, PermanentError) and successor
                if not final and wish.attempt < _MAX_ATTEMPTS:
                    raise TransientError(f"cleaning up after the former {ref}: {error}") from error
                logger.error("%s: left behind by an object that is gone: %s", ref, error)
        return await self._world.forget_orphans(ref, reported, sequence, recorder)

    async def _clean_up(self, run: Run, successor: Object | None) -> None:
        logger.info("%s (uid %s) is gone; cleaning up what it may have left", run.ref, run.object.uid)
        try:
            async with asyncio.timeout(self._kind.deadline):
                await self._actuator.clean_up(run, successor)
        except TimeoutError as error:
            raise TransientError(f"not finished within {self._kind.deadline:.0f} s") from error
        except Waiting as waiting:
            raise TransientError(str(waiting)) from waiting
