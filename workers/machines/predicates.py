"""Which changes of a MachineSet or MachineDeployment trigger a run of their own."""

from __future__ import annotations

from typing import Any

from bus.messages import Announcement
from bus.workqueue.routing import PreviousVersion
from windowbox.models.objects import Object


async def triggers(change: Announcement, before: PreviousVersion) -> bool:
    """All but changes of their status, which runs themselves make."""
    if change.gone or change.omitted or change.operation != "MODIFIED":
        return not change.gone
    old = await before.object()
    return old is None or _own(old) != _own(change.object())


def _own(found: Object) -> Any:
    return found.uid, found.generation, found.deleting, found.labels, found.annotations, found.finalizers
