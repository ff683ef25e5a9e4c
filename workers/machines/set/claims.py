"""Which Machines belong to a MachineSet."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from windowbox.models.objects import Object
from workers.machines import facts
from workers.machines.facts import MachineFacts


@dataclass(frozen=True)
class Claims:
    """The Machines of a MachineSet, and those to adopt and to release."""

    owned: list[MachineFacts]
    adopted: list[MachineFacts]
    released: list[MachineFacts]


def claims(owner: Object, machines: Iterable[MachineFacts]) -> Claims:
    """By owner reference and selector. A set that is being deleted adopts nothing."""
    owned: list[MachineFacts] = []
    adopted: list[MachineFacts] = []
    released: list[MachineFacts] = []
    for one in machines:
        matches = facts.selects(owner.spec.get("selector"), one.labels)
        if one.owner == owner.uid:
            # A set that goes takes all with it that it owns, whatever its selector has become.
            (owned if matches or owner.deleting else released).append(one)
        elif not one.owner and matches and not one.deleting and not owner.deleting:
            adopted.append(one)
    return Claims(owned, adopted, released)
