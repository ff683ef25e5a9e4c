"""MachineRun: the Machine that a run sees, and what the run reports. `runs.py` decides what to do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from bus import intents, subjects
from bus.messages import EventIntent, StatusIntent, Wish
from bus.transport.connection import Bus
from windowbox.models.objects import Object
from windowbox.models.refs import ObjectRef
from workers.core import clock, reports
from workers.core.lifecycle.kinds import Run
from workers.core.lifecycle.reporting import with_report
from workers.core.recorder import Recorder
from workers.machines.machine import statuses
from workers.machines.machine.statuses import Patch


@dataclass
class MachineRun:
    """A Machine with its last report, as if that were written; and the doors of its run."""

    bus: Bus
    ref: ObjectRef
    machine: Object
    wish: Wish
    recorder: Recorder
    now: datetime
    sequence: int

    @property
    def run(self) -> Run:
        """As provider clusters want to be asked for."""
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

        async def act() -> None:
            key = subjects.key(self.ref)
            self.sequence = await intents.report(self.bus, key, intent, self.sequence)

        request = intent.model_dump(exclude={"version"}, exclude_defaults=True)
        await self.recorder.call("report", request, act, effect=True)
        self.machine = with_report(self.machine, intent)
        return True


async def begun(bus: Bus, ref: ObjectRef, machine: Object, wish: Wish, recorder: Recorder) -> MachineRun:
    reported, sequence = await reports.last(bus, ref, recorder)
    now = await clock.now(recorder)
    return MachineRun(bus, ref, with_report(machine, reported), wish, recorder, now, sequence)
