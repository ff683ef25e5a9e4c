"""The phase of a Machine, derived from its node and its age. Pure: its tests are the tables of B9."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from windowbox.models import machinekeys as keys
from windowbox.models.machines import OperationState, OperationType, Phase
from windowbox.models.objects import Object
from workers.machines.machine import machinenodes
from workers.machines.machine.machinenodes import Condition
from workers.machines.machine.machinespecs import Timeouts
from workers.machines.machine.reasons import Reason

_UPDATING = (Phase.IN_PLACE_UPDATING, Phase.IN_PLACE_UPDATE_FAILED)
_TIMED = (Phase.UNKNOWN, Phase.IN_PLACE_UPDATE_FAILED)
_GIVEN_UP = "the machine is Failed then, unless its node is healthy before"
_TOO_LATE = "the machine is Failed then, unless it has joined before"
_UPDATE_FAILED = "its update in place has failed then, unless its node says before that it is done"


@dataclass(frozen=True)
class MachineState:
    """The status of a Machine."""

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
    """A new phase, and the last operation that explains it."""

    phase: Phase
    type: str
    state: OperationState
    description: str
    code: str | None = None
    """Of an error."""


@dataclass(frozen=True)
class Verdict:
    """The change that a Machine needs now, or the deadline of the next one."""

    change: Change | None = None
    deadline: datetime | None = None
    then: str = ""
    """The event at the deadline, for people."""
    needs_permit: bool = False
    """Whether the change waits its turn: one Machine of a MachineDeployment is replaced at a time."""


def may_have_lost_its_pod(state: MachineState, node: Object | None, timeouts: Timeouts) -> bool:
    """Whether the node is unhealthy, which may be because its Pod is gone."""
    if state.phase not in (Phase.RUNNING, Phase.UNKNOWN, *_UPDATING):
        return False
    if node is None:
        return bool(state.conditions)
    return not machinenodes.healthy(machinenodes.conditions(node), timeouts.node_conditions)


def verdict(
    state: MachineState, node: Object | None, timeouts: Timeouts, now: datetime, loss: Reason | None = None
) -> Verdict:
    """The change that the node's conditions and the time make necessary, for a Machine that has a Pod.

    `loss` is why its Pod is lost for good, if that is known: then no timeout applies.
    """
    found = machinenodes.conditions(node) if node is not None else []
    if node is not None and machinenodes.healthy(found, timeouts.node_conditions):
        held = state.phase == Phase.PENDING and machinenodes.awaits_critical_components(node)
        if state.phase not in (Phase.RUNNING, *_UPDATING) and not held:
            first = state.operation == OperationType.CREATE
            first = first and state.operation_state != OperationState.SUCCESSFUL
            text = f"Machine {state.name} successfully {'joined' if first else 're-joined'} the cluster"
            operation = OperationType.CREATE if first else OperationType.HEALTH_CHECK
            return Verdict(Change(Phase.RUNNING, operation, OperationState.SUCCESSFUL, text))
    elif state.phase == Phase.RUNNING and (node is not None or state.conditions):
        change = unhealthy(state, node, timeouts, loss)
        return Verdict(change, _health_deadline(timeouts, now, loss), _GIVEN_UP)
    if node is not None and state.phase in _UPDATING:
        # The node agent leaves the result of an in-place update in a label.
        result, operation = node.labels.get(keys.UPDATE_RESULT), OperationType.IN_PLACE_UPDATE
        if result == keys.SUCCESSFUL:
            text = f"Machine {state.name} successfully updated dependencies"
            phase = Phase.IN_PLACE_UPDATE_SUCCESSFUL
            return Verdict(Change(phase, operation, OperationState.SUCCESSFUL, text), then=_GIVEN_UP)
        if result == keys.FAILED and state.phase != Phase.IN_PLACE_UPDATE_FAILED:
            why = str(node.annotations.get(keys.UPDATE_FAILED_REASON, ""))[:500]
            text = f"Machine {state.name} failed to update dependencies: {why}"
            change = Change(Phase.IN_PLACE_UPDATE_FAILED, operation, OperationState.FAILED, text)
            return Verdict(change, _health_deadline(timeouts, now), _GIVEN_UP)
    return _timed_out(state, found, timeouts, now, loss)


def unhealthy(
    state: MachineState, node: Object | None, timeouts: Timeouts, loss: Reason | None = None
) -> Change:
    """The change to Unknown, with the conditions that caused it."""
    gone = "" if node is not None else "Node object went missing. "
    found = machinenodes.conditions(node) if node is not None else list(state.conditions)
    wrong = machinenodes.in_words(machinenodes.bad(found, timeouts.node_conditions))
    return Change(
        Phase.UNKNOWN,
        OperationType.HEALTH_CHECK,
        OperationState.PROCESSING,
        f"{gone}Machine {state.name} is unhealthy - changing MachinePhase to Unknown. "
        f"Node conditions: {wrong or 'none'}{f'. {loss.text}' if loss else ''}",
    )


def _health_deadline(timeouts: Timeouts, now: datetime, loss: Reason | None = None) -> datetime | None:
    """When a Machine becomes Failed whose phase changes now; None without a health timeout."""
    return None if timeouts.health is None else now + timedelta(seconds=0 if loss else timeouts.health)


def _timed_out(
    state: MachineState, found: Sequence[Condition], timeouts: Timeouts, now: datetime, loss: Reason | None
) -> Verdict:
    """The change at the end of the phase's timeout, or the deadline until then."""
    failed = OperationState.FAILED
    if state.phase in (Phase.PENDING, Phase.CRASH_LOOP_BACK_OFF, Phase.NEW):
        deadline = state.created + timedelta(seconds=timeouts.creation)
        if now < deadline:
            return Verdict(deadline=deadline, then=_TOO_LATE)
        if state.phase != Phase.PENDING:
            return Verdict()  # the next attempt to create the Pod fails, and reports why
        text = f"Machine {state.name} failed to join the cluster in {timeouts.creation / 60:g} minutes."
        return Verdict(Change(Phase.FAILED, state.operation or OperationType.CREATE, failed, text))
    if state.phase == Phase.IN_PLACE_UPDATING:
        deadline = state.since + timedelta(seconds=timeouts.in_place)
        if now < deadline and not loss:
            return Verdict(deadline=deadline, then=_UPDATE_FAILED)
        text = f"Machine {state.name} failed to in-place update in {timeouts.in_place / 60:g} minutes."
        if loss:
            text = f"Machine {state.name} failed to in-place update: {loss.text}"
        change = Change(Phase.IN_PLACE_UPDATE_FAILED, OperationType.IN_PLACE_UPDATE, failed, text)
        return Verdict(change, _health_deadline(timeouts, now, loss), _GIVEN_UP)
    if state.phase in _TIMED and timeouts.health is not None:
        deadline = state.since + timedelta(seconds=timeouts.health)
        if now < deadline and not loss:
            return Verdict(deadline=deadline, then=_GIVEN_UP)
        bad = machinenodes.bad(found, timeouts.node_conditions)
        wrong = machinenodes.in_words(bad) or "there is no node"
        since = f"health checks failing since last {timeouts.health / 60:g} minutes"
        text = (
            f"Machine {state.name} {f'is lost: {loss.text}' if loss else since}. "
            f"Updating machine phase to Failed. Node Conditions: {wrong}"
        )
        operation = state.operation or OperationType.HEALTH_CHECK
        return Verdict(Change(Phase.FAILED, operation, failed, text), needs_permit=True)
    return Verdict()
