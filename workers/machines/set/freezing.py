"""Freezing: a MachineSet with too many machines creates no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from windowbox.models import machinekeys as keys
from windowbox.models.objects import mapping
from workers.machines.facts import MachineFacts, strings
from workers.machines.sets import MachineSet

REASON = "OverShootingReplicaCount"


@dataclass(frozen=True)
class Limits:
    """At how many machines a set is frozen, and at how many no longer."""

    upper: int
    lower: int


def limits(owner: MachineSet, wanted: int | None, surge: int, up: int, down: int) -> Limits:
    """Of a set whose MachineDeployment wants so many machines; None if it has none."""
    upper = (2 * owner.wanted if wanted is None else wanted + surge) + up
    return Limits(upper, upper - down)


def counted(owner: MachineSet, machines: Sequence[MachineFacts]) -> int:
    """How many machines count: those that are owned, bear the labels of the template, and stay.

    Gardener's own counts machines that are being deleted, too, so that a large set that shrinks is frozen,
    and its Worker fails, until they are gone.
    """
    labels = strings(mapping(mapping(owner.template.get("metadata")).get("labels")))
    return sum(labels.items() <= dict(one.labels).items() for one in machines if not one.terminating)


def is_frozen(owner: MachineSet, count: int, limit: Limits) -> bool:
    """Whether the set is to be frozen from now on."""
    if keys.UNFREEZE in owner.annotations:
        return False
    return count > limit.lower if owner.frozen else count >= limit.upper


def message(owner: MachineSet, count: int, limit: Limits) -> str:
    return (
        f"The number of machines backing MachineSet: {owner.name} is {count} >= {limit.upper} "
        "which is the Max-ScaleUp-Limit"
    )
