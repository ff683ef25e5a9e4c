"""Orphans: objects that are gone although no Delete run has completed. Their owned objects are removed.

The API server's DELETE may read an object before our finalizer is on it, and delete it in spite of it
(kubernetes/kubernetes#77988). The bus then announces a deletion without a deletionTimestamp, while a run has
acted already. The object's last version is kept beside its report until a run has cleaned up. The last user
of a shared object is kept likewise, deleted or not.
"""

from __future__ import annotations

import asyncio
import logging

from bus.messages import StatusIntent
from windowbox.errors import PermanentError, TransientError, Waiting
from windowbox.models.objects import Object
from windowbox.telemetry import metrics
from workers.core.lifecycle import runpredicates
from workers.core.lifecycle.actuators import Actuator, Kind, Need, Run
from workers.core.lifecycle.operations import Operation
from workers.core.lifecycle.runpredicates import Scope
from workers.core.lifecycle.world import World
from workers.core.reconcile import Request

logger = logging.getLogger(__name__)

_MAKING = (Operation.CREATE, Operation.RECONCILE, Operation.RESTORE)
_MAX_ATTEMPTS = 18
"""Attempts, some twenty minutes, after which objects that cannot be removed are left behind."""


def is_orphan(last: Object, finalizer: str, reported: StatusIntent | None) -> bool:
    """Whether a vanished object may have left owned objects; `last` is its last version."""
    if last.deleting:
        return False  # only a Delete run, or a person, removes the finalizer
    report = reported.patch.get("lastOperation", {}) if reported and reported.uid == last.uid else {}
    if (report.get("type"), report.get("state")) == (Operation.MIGRATE, "Succeeded"):
        return False  # migrated: another seed uses its owned objects
    if finalizer in last.finalizers:
        return True
    # The watch may have missed the version with the finalizer, and the one with the report.
    if reported is None or reported.uid != last.uid:
        return False
    unseen = str(last.last_operation.get("lastUpdateTime", "")) < str(report.get("lastUpdateTime", ""))
    return unseen and report.get("type") in _MAKING


class OrphanCleanup:
    """Cleans up after the orphans of one name, before its next run."""

    def __init__(self, kind: Kind, actuator: Actuator, scope: Scope, world: World) -> None:
        self._kind = kind
        self._actuator = actuator
        self._scope = scope
        self._world = world

    async def run(self, request: Request, reported: StatusIntent) -> None:
        """Clean up after `reported.orphans`."""
        ref, recorder = request.ref, request.recorder
        live = await self._world.live(ref, recorder)
        successor = (
            live
            if live and runpredicates.responsible(self._kind.without_unknown_operation(live), self._scope)
            else None
        )
        shoot = None
        if self._kind.shoot is not Need.NEVER:
            shoot, _ = await self._world.shoot(ref, recorder, required=self._kind.shoot is Need.REQUIRED)
        for orphan in map(Object, reported.orphans):
            if live and live.uid == orphan.uid:
                continue  # it exists: the bus was behind
            memo = dict(reported.memo) if reported.uid == orphan.uid else {}
            run = Run(ref, orphan, shoot, recorder, memo=memo)
            logger.info("%s (uid %s) is gone without a Delete run; cleaning up", ref, orphan.uid)
            try:
                async with asyncio.timeout(self._kind.deadline):
                    await self._actuator.clean_up(run, successor)
                if not orphan.deleting:
                    metrics.orphans.labels(self._kind.pool).inc()
            except (TransientError, PermanentError, Waiting, TimeoutError) as error:
                late = f"not finished within {self._kind.deadline:.0f} s"
                why = late if isinstance(error, TimeoutError) else str(error)
                # A new object of the name must not wait until a person corrects the old one.
                final = isinstance(error, PermanentError) and successor
                if not final and request.wish.attempt < _MAX_ATTEMPTS:
                    raise TransientError(f"cleaning up after the former {ref}: {why}") from error
                logger.error("%s: cleanup after a deleted object failed for good: %s", ref, why)
        await request.reports.forget_orphans()
