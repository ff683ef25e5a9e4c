"""Which phase a Machine gets, from its node and its age. Pure: the tables of B9 are its tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from windowbox.models import machinekeys as keys
from windowbox.models.machines import OperationState, OperationType, Phase
from windowbox.models.objects import Object
from workers.machines.machine import nodes
from workers.machines.machine.nodes import Condition
from workers.machines.machine.reasons import Reason
from workers.machines.machine.specs import Timeouts

_UPDATING = (Phase.IN_PLACE_UPDATING, Phase.IN_PLACE_UPDATE_FAILED)
_TIMED = (Phase.UNKNOWN, Phase.IN_PLACE_UPDATE_FAILED)
_GIVEN_UP = "the machine is Failed then, unless its node is healthy before"
_TOO_LATE = "the machine is Failed then, unless it has joined before"
_UPDATE_FAILED = "its update in place has failed then, unless its node says before that it is done"


@dataclass(frozen=True)
class MachineState:
    """What a Machine's status says."""

    name: str
    phase: str
    created: datetime
    since: datetime
    """When `currentStatus` was written last."""
    operation: str = ""
    operation_state: str = ""
    conditions: Sequence[Condition] = ()


@dataclass(frozen=True)
class Change:
    """A new phase, and what is said about it."""

    phase: Phase
    type: str
    state: OperationState
    description: str


@dataclass(frozen=True)
class Verdict:
    """What becomes of a Machine now, and when to look again."""

    change: Change | None = None
    deadline: datetime | None = None
    then: str = ""
    """What becomes of the Machine at the deadline, for people."""
    needs_permit: bool = field(default=False)
    """Only one Machine of a MachineDeployment may be given up at a time."""


def may_have_lost_its_pod(state: MachineState, node: Object | None, timeouts: Timeouts) -> bool:
    """Whether the node does not work, so that it is worth asking for the Pod that it runs in."""
    if state.phase not in (Phase.RUNNING, Phase.UNKNOWN, *_UPDATING):
        return False
    if node is None:
        return bool(state.conditions)
    return not nodes.healthy(nodes.conditions(node), timeouts.node_conditions)


def verdict(
    state: MachineState, node: Object | None, timeouts: Timeouts, now: datetime, loss: Reason | None = None
) -> Verdict:
    """What the node, and the time, make of a Machine that has been made.

    `loss` says why its Pod is lost for good, if that is known: then there is nothing to wait for.
    """
    found = nodes.conditions(node) if node is not None else []
    if node is not None and nodes.healthy(found, timeouts.node_conditions):
        held = state.phase == Phase.PENDING and nodes.awaits_critical_components(node)
        if state.phase not in (Phase.RUNNING, *_UPDATING) and not held:
            return Verdict(_joined(state))
    elif state.phase == Phase.RUNNING and (node is not None or state.conditions):
        change = unhealthy(state, node, timeouts, loss)
        return Verdict(change, _health_deadline(timeouts, now, loss), _GIVEN_UP)
    if node is not None and state.phase in _UPDATING and (updated := _updated(state, node)):
        failed = updated.phase == Phase.IN_PLACE_UPDATE_FAILED
        return Verdict(updated, _health_deadline(timeouts, now) if failed else None, _GIVEN_UP)
    return _timed(state, found, timeouts, now, loss)


def _health_deadline(timeouts: Timeouts, now: datetime, loss: Reason | None = None) -> datetime | None:
    """When a Machine is given up whose phase changes now."""
    return None if timeouts.health is None else now + timedelta(seconds=0 if loss else timeouts.health)


def _updated(state: MachineState, node: Object) -> Change | None:
    """What the node agent says of an update in place; None if nothing new."""
    result, operation = node.labels.get(keys.UPDATE_RESULT), OperationType.IN_PLACE_UPDATE
    if result == keys.SUCCESSFUL:
        text = f"Machine {state.name} successfully updated dependencies"
        return Change(Phase.IN_PLACE_UPDATE_SUCCESSFUL, operation, OperationState.SUCCESSFUL, text)
    if result == keys.FAILED and state.phase != Phase.IN_PLACE_UPDATE_FAILED:
        why = str(node.annotations.get(keys.UPDATE_FAILED_REASON, ""))[:500]
        text = f"Machine {state.name} failed to update dependencies: {why}"
        return Change(Phase.IN_PLACE_UPDATE_FAILED, operation, OperationState.FAILED, text)
    return None


def _timed(
    state: MachineState,
    found: Sequence[Condition],
    timeouts: Timeouts,
    now: datetime,
    loss: Reason | None,
) -> Verdict:
    if state.phase in (Phase.PENDING, Phase.CRASH_LOOP_BACK_OFF, Phase.NEW):
        deadline = state.created + timedelta(seconds=timeouts.creation)
        if now < deadline:
            return Verdict(deadline=deadline, then=_TOO_LATE)
        if state.phase != Phase.PENDING:
            return Verdict()  # the attempt that fails next says why
        return Verdict(_too_late(state, timeouts.creation))
    if state.phase == Phase.IN_PLACE_UPDATING:
        deadline = state.since + timedelta(seconds=timeouts.in_place)
        if now < deadline and not loss:
            return Verdict(deadline=deadline, then=_UPDATE_FAILED)
        text = f"Machine {state.name} failed to in-place update in {timeouts.in_place / 60:g} minutes."
        if loss:
            text = f"Machine {state.name} failed to in-place update: {loss.text}"
        failed = OperationState.FAILED
        change = Change(Phase.IN_PLACE_UPDATE_FAILED, OperationType.IN_PLACE_UPDATE, failed, text)
        return Verdict(change, _health_deadline(timeouts, now, loss), _GIVEN_UP)
    if state.phase in _TIMED and timeouts.health is not None:
        deadline = state.since + timedelta(seconds=timeouts.health)
        if now < deadline and not loss:
            return Verdict(deadline=deadline, then=_GIVEN_UP)
        return Verdict(_given_up(state, found, timeouts, loss), needs_permit=True)
    return Verdict()


def _joined(state: MachineState) -> Change:
    first = state.operation == OperationType.CREATE and state.operation_state != OperationState.SUCCESSFUL
    how = "successfully joined" if first else "successfully re-joined"
    return Change(
        Phase.RUNNING,
        OperationType.CREATE if first else OperationType.HEALTH_CHECK,
        OperationState.SUCCESSFUL,
        f"Machine {state.name} {how} the cluster",
    )


def unhealthy(
    state: MachineState, node: Object | None, timeouts: Timeouts, loss: Reason | None = None
) -> Change:
    """What an Unknown Machine says."""
    gone = "" if node is not None else "Node object went missing. "
    found = nodes.conditions(node) if node is not None else list(state.conditions)
    wrong = nodes.told(nodes.bad(found, timeouts.node_conditions))
    return Change(
        Phase.UNKNOWN,
        OperationType.HEALTH_CHECK,
        OperationState.PROCESSING,
        f"{gone}Machine {state.name} is unhealthy - changing MachinePhase to Unknown. "
        f"Node conditions: {wrong or 'none'}{f'. {loss.text}' if loss else ''}",
    )


def _too_late(state: MachineState, timeout: float) -> Change:
    minutes = f"{timeout / 60:g}"
    return Change(
        Phase.FAILED,
        state.operation or OperationType.CREATE,
        OperationState.FAILED,
        f"Machine {state.name} failed to join the cluster in {minutes} minutes.",
    )


def _given_up(
    state: MachineState, found: Sequence[Condition], timeouts: Timeouts, loss: Reason | None
) -> Change:
    assert timeouts.health is not None
    wrong = nodes.told(nodes.bad(found, timeouts.node_conditions)) or "there is no node"
    since = f"health checks failing since last {timeouts.health / 60:g} minutes"
    return Change(
        Phase.FAILED,
        state.operation or OperationType.HEALTH_CHECK,
        OperationState.FAILED,
        f"Machine {state.name} {f'is lost: {loss.text}' if loss else since}. "
        f"Updating machine phase to Failed. Node Conditions: {wrong}",
    )
