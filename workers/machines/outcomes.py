"""How runs of MachineSets and MachineDeployments end that could not do what was asked."""

from __future__ import annotations

from bus.messages import Reason, Result, Wish
from bus.transport.connection import Bus
from bus.workqueue.pool import Outcome, RequeueAfter, backoff
from windowbox.errors import PermanentError, TransientError
from windowbox.models.refs import ObjectRef
from workers.core.handler import quarantined
from workers.core.recorder import Recorder
from workers.machines.reporting import StatusReport

_LONGEST = 300.0


def retried(error: TransientError | PermanentError, wish: Wish) -> Outcome:
    """The same once more, after a while."""
    attempt = wish.attempt + 1
    first = 0.05 if isinstance(error, TransientError) else 2.0
    after = getattr(error, "retry_after", None) or backoff(attempt, first=first, longest=_LONGEST)
    again = RequeueAfter(Wish(reason=Reason.RETRY, attempt=attempt), after)
    return Outcome(Result.WAITING if isinstance(error, TransientError) else Result.FAILED, again, str(error))


async def report_quarantine(bus: Bus, ref: ObjectRef, recorder: Recorder) -> None:
    """Report that the object is left alone."""
    found = await recorder.read(ref)
    if found is None:
        return
    report = StatusReport(bus, ref, found, recorder)
    await report.begin()
    report.events.append(quarantined(ref))
    await report.end({})
