"""The changes of a MachineSet or MachineDeployment that requeue it."""

from __future__ import annotations

from typing import Any

from bus.messages import Announcement
from bus.workqueue.routing import PreviousVersion
from windowbox.models.objects import Object


async def triggers(change: Announcement, before: PreviousVersion) -> bool:
    """All changes but those of the status, which runs make themselves."""
    if change.gone or change.omitted or change.operation != "MODIFIED":
        return not change.gone
    old = await before.object()

    def compared(found: Object) -> Any:
        return found.uid, found.generation, found.deleting, found.labels, found.annotations, found.finalizers

    return old is None or compared(old) != compared(change.object())
