"""A node that is updated in place: its condition `InPlaceUpdate` leads from candidate to result.

Whoever serves MachineDeployments marks nodes as candidates and as selected; the node agent updates a node
that is ready for it, and leaves the result in a label. Each run takes one step: the node's change starts the
next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from bus.messages import Reason, Wish
from bus.outcomes import RequeueAfter, backoff
from windowbox.errors import PermanentError, TransientError
from windowbox.models import machinekeys as keys
from windowbox.models.extensions import instant, spelled
from windowbox.models.machines import OperationState, OperationType, Phase
from windowbox.models.objects import Object
from windowbox.models.refs import NODES
from windowbox.settings.kindsettings import MachineSettings
from workers.core.owned.targets import TargetCluster
from workers.machines.machine import drain, nodes, specs, statuses
from workers.machines.machine.drain import Mode
from workers.machines.machine.evictions import Evictions
from workers.machines.machine.phases import Change
from workers.machines.machine.run import MachineRun
from workers.machines.machine.specs import Timeouts

CANDIDATE, SELECTED, DRAINED = "CandidateForUpdate", "SelectedForUpdate", "DrainSuccessful"
READY, SUCCESSFUL, FAILED = "ReadyForUpdate", "UpdateSuccessful", "UpdateFailed"

_MESSAGES = {
    CANDIDATE: "Node is a candidate for in-place update",
    SELECTED: "Node is selected for in-place update",
    DRAINED: "Node draining successful",
    READY: "Node is ready for in-place update",
    SUCCESSFUL: "Node in-place update successful",
}
_LONGEST_PAUSE = 20.0


def reason(node: Object) -> str:
    """How far the update of the node is; empty if there is none."""
    return str(_condition(node).get("reason") or "")


def next_reason(node: Object) -> str:
    """What its labels make of the condition; empty if it stays."""
    if keys.CANDIDATE not in node.labels:
        return ""
    now, result = reason(node), node.labels.get(keys.UPDATE_RESULT)
    if not now or (now == SUCCESSFUL and result is None):
        return CANDIDATE
    if keys.SELECTED in node.labels and now in (CANDIDATE, SELECTED):
        return SELECTED if now == CANDIDATE else ""
    wanted = {keys.SUCCESSFUL: SUCCESSFUL, keys.FAILED: FAILED}.get(str(result), "")
    if not wanted and now == DRAINED:
        return READY
    return "" if wanted == now else wanted


def mode(machine: Object, node: Object, timeouts: Timeouts, now: datetime) -> Mode:
    """How the node is emptied for its update. The machine stays in any case."""
    if machine.labels.get(keys.FORCE_DRAIN) == "True":
        return Mode(True, False, f"label {keys.FORCE_DRAIN} is set")
    if now - _selected(node, now) > timedelta(seconds=timeouts.drain):
        return Mode(True, False, f"the node was not empty after {timeouts.drain / 60:g} minutes")
    if why := drain.sick(node, now):
        return Mode(True, False, why)
    return Mode(False, False)


@dataclass(frozen=True)
class InPlace:
    settings: MachineSettings

    async def run(self, run: MachineRun, shoot: TargetCluster, node: Object) -> RequeueAfter | None:
        """Take the next step. Returns when to go on, should the node not change meanwhile."""
        if wanted := next_reason(node):
            await self._tell(run, shoot, node, wanted)
            return None
        if reason(node) != SELECTED or keys.CANDIDATE not in node.labels:
            return None
        said = [dict(one) for one in nodes.conditions(node)]
        if left := await self._drained(run, shoot, node):
            text = f"{'; '.join(left)}. {statuses.DRAINING}"
            at = spelled(run.now)
            last = statuses.operation(OperationType.DRAIN_NODE, OperationState.PROCESSING, text, at)
            current = dict(statuses.current(run.machine))
            await run.report({"lastOperation": last, "currentStatus": current, "conditions": said})
            return _again(run)
        text = f"Machine {run.ref.name} is undergoing an in-place update"
        change = Change(
            Phase.IN_PLACE_UPDATING, OperationType.IN_PLACE_UPDATE, OperationState.PROCESSING, text
        )
        await run.report(statuses.changed(change, run.now, said))
        await self._tell(run, shoot, node, DRAINED)
        return None

    async def _drained(self, run: MachineRun, shoot: TargetCluster, node: Object) -> list[str]:
        timeouts = specs.timeouts(run.machine, self.settings)
        evicting = run.now < drain.evicted_until(_selected(node, run.now), timeouts)
        evictions = Evictions(shoot, node, run.now, leaves=False)
        try:
            return await evictions.step(mode(run.machine, node, timeouts, run.now), evicting=evicting)
        except (TransientError, PermanentError) as error:
            return [f"the Shoot cannot be asked: {error}"]

    async def _tell(self, run: MachineRun, shoot: TargetCluster, node: Object, to: str) -> None:
        why = str(node.annotations.get(keys.UPDATE_FAILED_REASON, ""))[:500]
        message = _MESSAGES.get(to, f"Node in-place update failed: {why}")
        at = spelled(run.now)
        condition = {
            "type": nodes.IN_PLACE,
            "status": "True",
            "reason": to,
            "message": message,
            "lastHeartbeatTime": at,
            "lastTransitionTime": at,
        }
        patch = {"metadata": {"uid": node.uid}, "status": {"conditions": [condition]}}
        await shoot.strategic_merge(NODES, "", node.name, patch, part="status")


def _condition(node: Object) -> Mapping[str, Any]:
    return next((one for one in nodes.conditions(node) if one["type"] == nodes.IN_PLACE), {})


def _selected(node: Object, now: datetime) -> datetime:
    """Since when the node is to be emptied."""
    return instant(_condition(node).get("lastTransitionTime")) or now


def _again(run: MachineRun) -> RequeueAfter:
    attempt = run.wish.attempt + 1
    pause = backoff(attempt, first=0.25, longest=_LONGEST_PAUSE)
    return RequeueAfter(Wish(reason=Reason.RETRY, attempt=attempt), pause)
