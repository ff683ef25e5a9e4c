"""Preservation of failed Machines: the value of the annotation that counts. Pure."""

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
    """The value of the annotation that counts. `on_node` is the node's, None if there is no such node.

    Gardener's own deletes a failed machine whose node is missing, whatever its annotation says.
    """
    own, applied = machine.annotations.get(keys.PRESERVE, ""), machine.annotations.get(keys.LAST_PRESERVE, "")
    if on_node is None or not (on_node or applied):
        return own if own in VALUES else ""
    return on_node


def is_kept(machine: MachineFacts, on_node: str | None, now: datetime) -> bool:
    """Whether a failed machine is not replaced: it is preserved, or about to be."""
    if machine.preserved_until:
        return machine.expiry is not None and machine.expiry > now
    return effective(machine, on_node) in (NOW, WHEN_FAILED, AUTO)


def automatic(machines: Sequence[MachineFacts], most: int) -> tuple[list[MachineFacts], list[MachineFacts]]:
    """Of the machines of a set that preserves up to `most`: those to preserve from now on, and no longer."""
    preserved = [one for one in machines if one.annotations.get(keys.PRESERVE) == AUTO]
    room = most - len(preserved)
    if room < 0:
        return [], _by_age(preserved)[:-room]
    candidates = [one for one in machines if one.failed and not one.deleting and not _decided(one)]
    return _by_age(candidates)[::-1][:room], []


def _decided(machine: MachineFacts) -> bool:
    return machine.annotations.get(keys.PRESERVE) in VALUES


def _by_age(machines: Iterable[MachineFacts]) -> list[MachineFacts]:
    return sorted(machines, key=lambda one: (one.created, one.name))
