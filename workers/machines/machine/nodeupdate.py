"""In-place update of a node: its condition `InPlaceUpdate` leads from candidate to result.

The controller of MachineDeployments labels nodes as candidates and as selected. The node agent updates a node
that is ready for it, and leaves the result in a label. Each run takes one step; the node's change starts the
next run.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from bus.outcomes import RequeueAfter
from windowbox.errors import PermanentError, TransientError
from windowbox.models import machinekeys as keys
from windowbox.models.extensions import instant, spelled
from windowbox.models.machines import OperationState, OperationType, Phase
from windowbox.models.objects import Object
from windowbox.models.refs import NODES
from workers.core.owned.targets import TargetCluster
from workers.machines.machine import machinenodes, machinestatus, nodedrain
from workers.machines.machine.machinespecs import Timeouts
from workers.machines.machine.machinestatus import MachineRun
from workers.machines.machine.nodedrain import Mode, NodeDrain
from workers.machines.machine.phases import Change

CANDIDATE, SELECTED, DRAINED = "CandidateForUpdate", "SelectedForUpdate", "DrainSuccessful"
READY, SUCCESSFUL, FAILED = "ReadyForUpdate", "UpdateSuccessful", "UpdateFailed"

_MESSAGES = {
    CANDIDATE: "Node is a candidate for in-place update",
    SELECTED: "Node is selected for in-place update",
    DRAINED: "Node draining successful",
    READY: "Node is ready for in-place update",
    SUCCESSFUL: "Node in-place update successful",
}


def next_reason(node: Object) -> str:
    """The reason that the condition gets next, from the node's labels; empty if it stays."""
    if keys.CANDIDATE not in node.labels:
        return ""
    now, result = _reason(node), node.labels.get(keys.UPDATE_RESULT)
    if not now or (now == SUCCESSFUL and result is None):
        return CANDIDATE
    if keys.SELECTED in node.labels and now in (CANDIDATE, SELECTED):
        return SELECTED if now == CANDIDATE else ""
    wanted = {keys.SUCCESSFUL: SUCCESSFUL, keys.FAILED: FAILED}.get(str(result), "")
    if not wanted and now == DRAINED:
        return READY
    return "" if wanted == now else wanted


def mode(machine: Object, node: Object, timeouts: Timeouts, now: datetime) -> Mode:
    """How the node is drained for its update. The machine stays in any case."""
    forced = (
        machine.labels.get(keys.FORCE_DRAIN) == "True"
        or now - _selected_at(node, now) > timedelta(seconds=timeouts.drain)
        or nodedrain.is_sick(node, now)
    )
    return Mode(forced, machine_too=False)


async def advance(
    run: MachineRun, shoot: TargetCluster, node: Object, timeouts: Timeouts
) -> RequeueAfter | None:
    """Take the next step of the update. Returns when to continue if the node does not change before."""
    if wanted := next_reason(node):
        await _set_reason(run, shoot, node, wanted)
        return None
    if _reason(node) != SELECTED or keys.CANDIDATE not in node.labels:
        return None
    conditions = machinenodes.bounded(machinenodes.conditions(node))
    evicting = run.now < nodedrain.evicted_until(_selected_at(node, run.now), timeouts)
    drain = NodeDrain(shoot, node, run.now, leaves=False)
    try:
        left = await drain.step(mode(run.machine, node, timeouts, run.now), evicting=evicting)
    except (TransientError, PermanentError) as error:
        left = [f"the Shoot cannot be asked: {error}"]
    if left:
        text = f"{'; '.join(left)}. {machinestatus.DRAINING}"
        state, at = OperationState.PROCESSING, spelled(run.now)
        last = machinestatus.operation(OperationType.DRAIN_NODE, state, text, at)
        await run.report_part(lastOperation=last, conditions=conditions)
        return run.retry_drain()
    # The phase first: the node agent may start as soon as the condition says that the node is empty.
    text = f"Machine {run.ref.name} is undergoing an in-place update"
    operation, state = OperationType.IN_PLACE_UPDATE, OperationState.PROCESSING
    change = Change(Phase.IN_PLACE_UPDATING, operation, state, text)
    await run.report_change(change, conditions=conditions)
    await _set_reason(run, shoot, node, DRAINED)
    return None


async def _set_reason(run: MachineRun, shoot: TargetCluster, node: Object, reason: str) -> None:
    why = str(node.annotations.get(keys.UPDATE_FAILED_REASON, ""))[:500]
    message = _MESSAGES.get(reason, f"Node in-place update failed: {why}")
    condition = machinenodes.new_condition(machinenodes.IN_PLACE, "True", reason, message, run.now)
    patch = {"metadata": {"uid": node.uid}, **condition}
    await shoot.strategic_merge(NODES, "", node.name, patch, part="status")


def _reason(node: Object) -> str:
    """How far the node's update is; empty if there is none."""
    return str((machinenodes.condition(node, machinenodes.IN_PLACE) or {}).get("reason") or "")


def _selected_at(node: Object, now: datetime) -> datetime:
    """When the node was selected: its drain starts then."""
    condition = machinenodes.condition(node, machinenodes.IN_PLACE) or {}
    return instant(condition.get("lastTransitionTime")) or now
