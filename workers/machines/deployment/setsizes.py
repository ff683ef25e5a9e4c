"""The next step of a rolling update: the replicas of each MachineSet."""

from __future__ import annotations

from workers.machines.deployment.state import State
from workers.machines.sets import MachineSet

Sizes = dict[str, int]
"""Replicas by the name of the MachineSet; others stay."""


def first_size(state: State) -> int:
    """The replicas of a new MachineSet."""
    room = state.spec.replicas + state.spec.surge - state.occupied
    return max(0, min(room, state.spec.replicas))


def step(state: State, new: MachineSet) -> Sizes:
    """Scale up the new MachineSet within the surge; otherwise scale down the old ones."""
    return _new_size(state, new) or _old_sizes(state, new)


def _new_size(state: State, new: MachineSet) -> Sizes:
    wanted = state.spec.replicas
    if new.wanted > wanted:
        return {new.name: wanted}
    room = wanted + state.spec.surge - state.occupied
    grown = new.wanted + max(0, min(room, wanted - new.wanted))
    return {} if grown == new.wanted else {new.name: grown}


def _old_sizes(state: State, new: MachineSet) -> Sizes:
    old = [one for one in state.old if one.wanted > 0]
    spare = state.wanted - state.spec.min_available - (new.wanted - new.available)
    if not old or spare <= 0:
        return {}
    sizes = _without_unavailable(old, spare)
    left = {one.name: sizes.get(one.name, one.wanted) for one in old}
    # Machines about to be deleted are still available, but do not count.
    available = sum(min(one.available, left[one.name]) for one in old) + new.available
    spare = available - state.spec.min_available
    for one in old:
        gone = min(max(spare, 0), left[one.name])
        spare -= gone
        left[one.name] -= gone
    return {one.name: left[one.name] for one in old if left[one.name] != one.wanted}


def _without_unavailable(old: list[MachineSet], most: int) -> Sizes:
    """The old MachineSets without their unavailable machines, the oldest first."""
    sizes: Sizes = {}
    for one in old:
        gone = min(most, max(0, one.wanted - one.available))
        most -= gone
        if gone:
            sizes[one.name] = one.wanted - gone
    return sizes
