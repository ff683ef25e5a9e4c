"""How many Machines a MachineSet creates and deletes to reach its `replicas`. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from windowbox.models import machinekeys as keys
from workers.machines import preservation
from workers.machines.facts import MachineFacts
from workers.machines.set import deletions
from workers.machines.sets import MachineSet

BURST = 100
"""The most machines that one run makes or deletes."""
_UPDATED = "successful"


@dataclass(frozen=True)
class Plan:
    """What a run is to do about the number of machines."""

    create: int = 0
    delete: tuple[MachineFacts, ...] = ()
    held: str = ""
    """Why machines that are missing are not made."""

    @property
    def acts(self) -> bool:
        return bool(self.create or self.delete)


def plan(
    owner: MachineSet, machines: Sequence[MachineFacts], nodes: dict[str, str | None], now: datetime
) -> Plan:
    """For the machines of a set. `nodes` holds, by name, what nodes of failed ones say of preservation."""
    if owner.object.deleting:
        return Plan(delete=_existing(machines))
    living = [one for one in machines if not one.terminating]
    if len(living) < owner.wanted:
        held = _held(owner)
        return Plan(create=0 if held else min(owner.wanted - len(living), BURST), held=held)
    # Machines that an in-place update hands over still count for the former set, or not yet for the new.
    own = [one for one in living if one.labels.get(keys.UPDATE_RESULT) != _UPDATED]
    going = deletions.first_to_go(own, now)[: max(0, len(own) - owner.wanted)]
    going += deletions.marked(own, owner.annotations.get(keys.SCALER_TIME, ""))
    going += [one for one in own if one.failed and not preservation.is_kept(one, nodes.get(one.node), now)]
    return Plan(delete=_existing(list({one.uid: one for one in going}.values())[:BURST]))


def _existing(machines: Collection[MachineFacts]) -> tuple[MachineFacts, ...]:
    return tuple(one for one in machines if not one.deleting)


def _held(owner: MachineSet) -> str:
    if owner.frozen:
        return "it is frozen, because it has too many machines"
    if keys.SCALE_UP_DISABLED in owner.labels:
        return "its machines are updated in place"
    return ""
