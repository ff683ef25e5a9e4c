"""The status of a Machine: what it shows, the patches that change it, and the error codes in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bus.messages import EventIntent, Reason, StatusIntent, Wish
from bus.outcomes import RequeueAfter, backoff
from windowbox.errors import Forbidden, Malformed, TransientError, Unreachable, WindowboxError
from windowbox.models.extensions import in_order, instant, spelled
from windowbox.models.machines import OperationState, OperationType, Phase
from windowbox.models.objects import Object, mapping, mappings
from windowbox.models.refs import ObjectRef
from workers.core.lifecycle.actuators import Run
from workers.core.reconcile import Request
from workers.core.recorder import Recorder
from workers.core.reports import with_report
from workers.machines.machine import machinenodes, reasons
from workers.machines.machine.machinenodes import Condition
from workers.machines.machine.phases import Change, MachineState

Patch = dict[str, Any]

NOT_CREATED = (Phase.NEW, Phase.CRASH_LOOP_BACK_OFF)
"""Phases of Machines that may have no Pod yet."""
CREATING = "Creating machine on cloud provider"
CREATED = "Created machine on cloud provider"
FAILURE = "Cloud provider message - "
DRAINING = "Initiate node drain"
DELETING = "Initiate VM deletion"

_LONGEST = 4000
"""Characters of a description."""
_LONGEST_ERROR = 1500
"""Characters of an error: a hostile server must not fill the status of Machines."""
_REPORTS, _WITHIN = 10, 60.0
"""Reports about the node of a Machine that are made in so many seconds: the node is its tenant's."""
_TIMES = "reports about the node"
_EPOCH = datetime.fromtimestamp(0, UTC)
_LONGEST_DRAIN_PAUSE = 20.0
_EXHAUSTED = frozenset(("ERR_INFRA_QUOTA_EXCEEDED", "ERR_INFRA_RESOURCES_DEPLETED"))


def current(machine: Object) -> Mapping[str, Any]:
    return mapping(machine.status.get("currentStatus"))


def phase(machine: Object) -> str:
    return str(current(machine).get("phase") or "")


def state(machine: Object) -> MachineState:
    last, created = machine.last_operation, instant(machine.metadata.get("creationTimestamp")) or _EPOCH
    return MachineState(
        name=machine.name,
        phase=phase(machine),
        created=created,
        since=instant(current(machine).get("lastUpdateTime")) or created,
        operation=str(last.get("type") or ""),
        operation_state=str(last.get("state") or ""),
        conditions=mappings(machine.status.get("conditions")),
    )


def changed(change: Change, now: datetime, conditions: Sequence[Condition] | None = None) -> Patch:
    """A patch with a new phase, which starts now."""
    at = spelled(now)
    patch: Patch = {
        "currentStatus": {
            "phase": change.phase,
            "timeoutActive": change.phase == Phase.PENDING,
            "lastUpdateTime": at,
        },
        "lastOperation": operation(change.type, change.state, change.description, at, change.code),
    }
    return patch if conditions is None else patch | {"conditions": [dict(one) for one in conditions]}


def operation(type: str, state: str, description: str, at: str, code: str | None = None) -> Patch:
    return {
        "type": type,
        "state": state,
        "description": description[:_LONGEST],
        "errorCode": code,
        "lastUpdateTime": at,
    }


def error_code(error: WindowboxError) -> str:
    """The code of machine-controller-manager for an error (B5)."""
    if not _EXHAUSTED.isdisjoint(error.codes):
        return "ResourceExhausted"
    match error:
        case Malformed():
            return "InvalidArgument"
        case Forbidden():
            return "PermissionDenied"
        case Unreachable():
            return "Unavailable"
        case TransientError():
            return "Unknown"
        case _:
            return "Internal"


def error_text(error: WindowboxError) -> str:
    """An error in the form that machine-controller-manager writes, and parses: two groups in brackets."""
    message = str(error)[:_LONGEST_ERROR].replace("[", "(").replace("]", ")")
    return f"machine codes error: code = [{error_code(error)}] message = [{message}]"


@dataclass
class MachineRun:
    """One run of a Machine, which shows the last report as if the patchers had written it."""

    request: Request
    machine: Object
    now: datetime
    held_back: float = 0.0
    """Seconds until a report about the node can be made that would have come too soon."""

    @property
    def ref(self) -> ObjectRef:
        return self.request.ref

    @property
    def recorder(self) -> Recorder:
        return self.request.recorder

    @property
    def run(self) -> Run:
        """The run in the form that TargetClusters takes."""
        return Run(self.ref, self.machine, None, self.recorder)

    @property
    def phase(self) -> str:
        return phase(self.machine)

    @property
    def _memo(self) -> Mapping[str, Any]:
        last = self.request.reports.latest
        return last.memo if last and last.uid == self.machine.uid else {}

    async def report(self, patch: Patch, event: EventIntent | None = None, *, of_node: bool = False) -> bool:
        """Report the status, unless it shows all that already, apart from times.

        One that follows from what is written to the node (`of_node`) is held back while there are too many.
        """

        def shows(shown: Any, patch: Any) -> bool:
            if isinstance(patch, Mapping):
                shown = shown if isinstance(shown, Mapping) else {}
                return all(shows(shown.get(k), v) for k, v in patch.items() if k != "lastUpdateTime")
            return bool(patch == shown)

        if shows(self.machine.status, patch):
            return False
        memo, now = dict(self._memo), self.now.timestamp()
        if of_node:
            # The clock of the process that wrote a time may have been ahead.
            times = [one for one in memo.get(_TIMES, ()) if abs(now - one) < _WITHIN]
            if len(times) >= _REPORTS:
                self.held_back = min(times) + _WITHIN - now
                return False
            memo[_TIMES] = [*times, round(now, 3)]
        events = (event,) if event else ()
        version = self.machine.resource_version
        ordered = in_order(patch, self.machine.status)
        intent = StatusIntent(uid=self.machine.uid, patch=ordered, events=events, version=version)
        await self.request.reports.send(intent, memo=memo)
        self.machine = with_report(self.machine, intent)
        return True

    async def report_change(
        self,
        change: Change,
        event: EventIntent | None = None,
        conditions: Sequence[Condition] | None = None,
        *,
        of_node: bool = False,
        **more: Any,
    ) -> None:
        """Report a new phase, which starts now, and further fields of the status."""
        await self.report(changed(change, self.now, conditions) | more, event, of_node=of_node)

    async def report_part(self, *, of_node: bool = False, **part: Any) -> None:
        """Report a part of the status, and the rest unchanged: the phase and its time stay."""
        rest = {
            "conditions": machinenodes.bounded(state(self.machine).conditions),
            "lastOperation": dict(self.machine.last_operation),
            "currentStatus": dict(current(self.machine)),
        }
        await self.report(rest | part, of_node=of_node)

    async def report_reason(self, why: reasons.Reason | None) -> None:
        """Report why a Machine is Pending, in its status and in an Event."""
        text = f"{CREATING}: {why.text}" if why else CREATING
        last = operation(OperationType.CREATE, OperationState.PROCESSING, text, spelled(self.now))
        event = EventIntent(type="Warning", reason=why.kind, note=why.text) if why else None
        await self.report({"lastOperation": last}, event, of_node=True)

    def retry_drain(self) -> RequeueAfter:
        """Requeue while Pods leave the node: the Shoot's Pods are not watched, so no event does."""
        attempt = self.request.wish.attempt + 1
        pause = backoff(attempt, first=0.25, longest=_LONGEST_DRAIN_PAUSE)
        return RequeueAfter(Wish(reason=Reason.RETRY, attempt=attempt), pause)
