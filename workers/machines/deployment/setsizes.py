"""The sizes of MachineSets: the next step of a rolling update, and after a change of `replicas`. Pure."""

from __future__ import annotations

import math

from windowbox.models import machinekeys as keys
from windowbox.models.machines import StrategyType
from workers.machines.deployment.deploymentstate import State
from workers.machines.facts import number
from workers.machines.sets import MachineSet, integer

Sizes = dict[str, int]
"""Replicas by the name of the MachineSet; others stay."""


def first_size(state: State) -> int:
    """The replicas of a new MachineSet."""
    # Created with its final size, the set would exceed the surge before the next step.
    room = state.spec.replicas + state.spec.surge - state.occupied
    return max(0, min(room, state.spec.replicas))


def step(state: State, new: MachineSet) -> Sizes:
    """The next step of a rolling update: grow the new set within the surge, otherwise shrink old sets."""
    wanted = state.spec.replicas
    if new.wanted > wanted:
        return {new.name: wanted}
    room = min(wanted + state.spec.surge - state.occupied, wanted - new.wanted)
    if room > 0:
        return {new.name: new.wanted + room}
    old = [one for one in state.old if one.wanted > 0]
    # Machines of the new set that are not available yet must not be replaced by deletions.
    spare = state.wanted - state.spec.min_available - (new.wanted - new.available)
    if not old or spare <= 0:
        return {}
    # Unavailable machines go first, the oldest sets before others.
    left: Sizes = {}
    for one in old:
        gone = min(spare, max(0, one.wanted - one.available))
        spare -= gone
        left[one.name] = one.wanted - gone
    # A machine that is about to be deleted is still available, but does not count.
    available = sum(min(one.available, left[one.name]) for one in old) + new.available
    spare = available - state.spec.min_available
    for one in old:
        gone = min(max(spare, 0), left[one.name])
        spare -= gone
        left[one.name] -= gone
    return {one.name: left[one.name] for one in old if left[one.name] != one.wanted}


def is_scaling(state: State) -> bool:
    """Whether `replicas` has changed since the sets were sized."""
    if state.new is None:
        return False
    if not state.active and state.spec.replicas > 0:  # the deployment wakes from hibernation
        return True
    desired = [integer(one.annotations.get(keys.DESIRED_REPLICAS)) for one in state.active]
    return any(one is not None and one != state.spec.replicas for one in desired)


def scaled(state: State) -> Sizes:
    """The sizes after `replicas` has changed.

    Includes sets that keep their size: their annotations have to follow `replicas`.
    """
    new, replicas = state.new, state.spec.replicas
    if len(state.active) < 2:
        only = state.active[0] if state.active else new or (state.old[-1] if state.old else None)
        if only:
            return {only.name: replicas}
    if new:
        desired = integer(new.annotations.get(keys.DESIRED_REPLICAS))
        if new.wanted == desired == new.available == replicas:  # the roll-out is complete but for old sets
            return {one.name: 0 for one in state.old if one.wanted > 0}
    allowed = replicas + state.spec.surge if replicas > 0 else 0
    if state.spec.strategy == StrategyType.IN_PLACE_UPDATE:
        # Old sets lose machines first; the update itself gives the new set more. Gardener's own controller
        # scales nothing here, and waits for ever.
        spare, sizes = max(0, state.wanted - allowed), Sizes()
        for one in [*state.old, *([new] if new else [])]:
            gone = min(one.wanted, spare)
            spare -= gone
            if one.wanted:
                sizes[one.name] = one.wanted - gone
        return sizes
    if state.spec.strategy != StrategyType.ROLLING_UPDATE:
        return {}
    added = allowed - state.wanted
    if added >= 0:
        sizes = {one.name: one.wanted for one in state.active}
        return sizes | ({new.name: new.wanted + added} if new else {})
    # Remove machines in proportion to the sizes of the sets; the largest set takes the rounding error.
    largest, sizes, done = sorted(state.active, key=lambda one: (-one.wanted, one.age)), Sizes(), 0
    for one in largest:
        size = 0.0
        if replicas > 0:
            # The share counts for the size that the set had when it was sized last.
            before = integer(one.annotations.get(keys.MAX_REPLICAS))
            before = before or number(state.deployment.status.get("replicas"))
            size = one.wanted * (replicas + state.spec.surge) / before if before else one.wanted
        fraction = math.floor(size + 0.5) - one.wanted
        share = max(fraction, added - done) if added != done else 0
        sizes[one.name] = one.wanted + share
        done += share
    first = largest[0].name
    return sizes | {first: max(sizes[first] + added - done, 0)}
