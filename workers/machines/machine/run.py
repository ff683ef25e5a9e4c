"""MachineRun: the Machine that a run sees, and what the run reports."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from bus.messages import EventIntent, StatusIntent, Wish
from windowbox.models.objects import Object
from windowbox.models.refs import ObjectRef
from workers.core import clock
from workers.core.lifecycle.kinds import Run
from workers.core.lifecycle.reporting import with_report
from workers.core.reconcile import Request
from workers.core.recorder import Recorder
from workers.machines.machine import statuses
from workers.machines.machine.statuses import Patch


@dataclass
class MachineRun:
    """A Machine with its last report, as if that were written."""

    request: Request
    machine: Object
    now: datetime

    @property
    def ref(self) -> ObjectRef:
        return self.request.ref

    @property
    def wish(self) -> Wish:
        return self.request.wish

    @property
    def recorder(self) -> Recorder:
        return self.request.recorder

    @property
    def run(self) -> Run:
        """The run as provider clusters take it."""
        return Run(self.ref, self.machine, None, self.recorder)

    @property
    def phase(self) -> str:
        return statuses.phase(self.machine)

    async def report(self, patch: Patch, event: EventIntent | None = None) -> bool:
        """Have the status written, unless it says so already."""
        if statuses.same(patch, self.machine):
            return False
        events = (event,) if event else ()
        version = self.machine.resource_version
        intent = StatusIntent(uid=self.machine.uid, patch=patch, events=events, version=version)
        await self.request.reports.send(intent)
        self.machine = with_report(self.machine, intent)
        return True


async def begun(request: Request, machine: Object) -> MachineRun:
    reported = await request.reports.last()
    return MachineRun(request, with_report(machine, reported), await clock.now(request.recorder))
