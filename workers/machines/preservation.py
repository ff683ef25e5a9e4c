"""Preservation of failed Machines: the annotation's effective value, and automatic preservation. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from windowbox.models import machinekeys as keys
from workers.machines.facts import MachineFacts

NOW = "now"
WHEN_FAILED = "when-failed"
AUTO = "auto-preserved"
NEVER = "false"
VALUES = frozenset({NOW, WHEN_FAILED, AUTO, NEVER})


def effective(machine: MachineFacts, on_node: str | None) -> str:
    """The annotation's effective value. `on_node` is the value on the node, None without a node.

    Unlike Gardener's own, which deletes a failed machine without a node, the Machine's value counts then.
    """
    own, applied = machine.annotations.get(keys.PRESERVE, ""), machine.annotations.get(keys.LAST_PRESERVE, "")
    if on_node is None or not (on_node or applied):
        return own if own in VALUES else ""
    return on_node


def is_kept(machine: MachineFacts, on_node: str | None, now: datetime) -> bool:
    """Whether a failed machine is kept: it is preserved, or about to be."""
    if machine.preserved_until:
        return machine.expiry is not None and machine.expiry > now
    return effective(machine, on_node) in (NOW, WHEN_FAILED, AUTO)


def automatic(machines: Sequence[MachineFacts], most: int) -> tuple[list[MachineFacts], list[MachineFacts]]:
    """The machines of a set to preserve from now on, and those to preserve no longer: up to `most` in all."""
    preserved = [one for one in machines if one.annotations.get(keys.PRESERVE) == AUTO]
    room = most - len(preserved)
    if room < 0:
        return [], _by_age(preserved)[:-room]
    # A valid annotation is somebody's decision.
    undecided = [one for one in machines if one.annotations.get(keys.PRESERVE) not in VALUES]
    candidates = [one for one in undecided if one.failed and not one.deleting]
    return _by_age(candidates)[::-1][:room], []


def _by_age(machines: Iterable[MachineFacts]) -> list[MachineFacts]:
    return sorted(machines, key=lambda one: (one.created, one.name))
