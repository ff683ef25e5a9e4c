"""The order in which Machines of a MachineSet are deleted."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from windowbox.models import machinekeys as keys
from windowbox.models.extensions import instant
from windowbox.models.machines import Phase
from workers.machines.facts import MachineFacts
from workers.machines.preservation import AUTO
from workers.machines.sets import integer

_PRIORITY = 3
_RANKS = {
    Phase.TERMINATING: 0,
    Phase.FAILED: 1,
    Phase.CRASH_LOOP_BACK_OFF: 2,
    Phase.UNKNOWN: 3,
    Phase.IN_PLACE_UPDATE_FAILED: 3,
    Phase.NEW: 4,
    Phase.PENDING: 4,
    Phase.AVAILABLE: 5,
    # Gardener's own has no rank for these and deletes them first, so that a set that shrinks during an
    # in-place update loses just the machines that are updated.
    Phase.IN_PLACE_UPDATING: 6,
    Phase.IN_PLACE_UPDATE_SUCCESSFUL: 7,
    Phase.RUNNING: 7,
}
_LATEST = datetime.max.replace(tzinfo=UTC)


def first_to_go(machines: Iterable[MachineFacts], now: datetime) -> list[MachineFacts]:
    """In the order in which they are deleted when there are too many."""
    return sorted(machines, key=lambda one: _order(one, now))


def marked(machines: Iterable[MachineFacts], scaler_time: str) -> list[MachineFacts]:
    """Those that the autoscaler has chosen, up to its last change of the replicas."""
    scaled = instant(scaler_time)
    if scaled is None:
        return []
    return [one for one in machines if one.annotations.get(keys.PRIORITY) == "1" and _marked(one) <= scaled]


def _order(machine: MachineFacts, now: datetime) -> tuple[object, ...]:
    expiry = machine.expiry
    preserved = expiry is not None and expiry > now
    explicit = preserved and machine.annotations.get(keys.PRESERVE) != AUTO
    priority = integer(machine.annotations.get(keys.PRIORITY, _PRIORITY))
    return (
        preserved,
        explicit,
        expiry if preserved and expiry else _LATEST,
        _PRIORITY if priority is None else priority,
        _marked(machine),
        _RANKS.get(Phase(machine.phase) if machine.phase in set(Phase) else Phase.UNKNOWN, 3),
        machine.created,
        machine.name,
    )


def _marked(machine: MachineFacts) -> datetime:
    return instant(machine.annotations.get(keys.MARKED_FOR_DELETION)) or _LATEST
