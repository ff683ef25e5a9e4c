"""A MachineDeployment that is scaled: how many machines each MachineSet is to have."""

from __future__ import annotations

import math

from windowbox.models import machinekeys as keys
from windowbox.models.machines import StrategyType
from workers.machines.deployment.rolling import Sizes
from workers.machines.deployment.state import State
from workers.machines.facts import number
from workers.machines.sets import MachineSet, integer


def is_scaling(state: State) -> bool:
    """Whether the number of machines has changed since the sets were sized."""
    if state.new is None:
        return False
    if not state.active and state.spec.replicas > 0:
        return True
    desired = [integer(one.annotations.get(keys.DESIRED_REPLICAS)) for one in state.active]
    return any(one is not None and one != state.spec.replicas for one in desired)


def sizes(state: State) -> Sizes:
    """For all sets whose annotations tell of the former number, too."""
    if one := _only(state):
        return {one.name: state.spec.replicas}
    if state.new and _saturated(state, state.new):
        return {one.name: 0 for one in state.old if one.wanted > 0}
    if state.spec.strategy == StrategyType.IN_PLACE_UPDATE:
        return _old_first(state)
    if state.spec.strategy != StrategyType.ROLLING_UPDATE:
        return {}
    allowed = state.spec.replicas + state.spec.surge if state.spec.replicas > 0 else 0
    added = allowed - state.wanted
    if added >= 0:
        found = {one.name: one.wanted for one in state.active}
        if state.new:
            found[state.new.name] = state.new.wanted + added
        return found
    return _proportional(state, added)


def noted(state: State) -> dict[str, str]:
    """What a set tells of the number that it was sized for."""
    surge = state.spec.surge if state.spec.strategy == StrategyType.ROLLING_UPDATE else 0
    return {
        keys.DESIRED_REPLICAS: str(state.spec.replicas),
        keys.MAX_REPLICAS: str(state.spec.replicas + surge),
    }


def _only(state: State) -> MachineSet | None:
    """The only active set; where there is none, the newest."""
    if len(state.active) == 1:
        return state.active[0]
    if state.active:
        return None
    return state.new or (state.old[-1] if state.old else None)


def _saturated(state: State, new: MachineSet) -> bool:
    desired = integer(new.annotations.get(keys.DESIRED_REPLICAS))
    return new.wanted == desired == new.available == state.spec.replicas


def _proportional(state: State, added: int) -> Sizes:
    """Fewer machines: the largest sets lose most, and the largest what is left over."""
    largest = sorted(state.active, key=lambda one: (-one.wanted, one.age))
    found, done = dict[str, int](), 0
    for one in largest:
        share = max(_fraction(state, one), added - done) if added != done else 0
        found[one.name] = one.wanted + share
        done += share
    first = largest[0].name
    found[first] = max(found[first] + added - done, 0)
    return found


def _old_first(state: State) -> Sizes:
    """Sets that are updated in place: old ones lose machines first, and the update itself adds them.

    Gardener's own scales nothing here, and waits for ever.
    """
    allowed = state.spec.replicas + state.spec.surge if state.spec.replicas > 0 else 0
    spare, found = max(0, state.wanted - allowed), dict[str, int]()
    for one in [*state.old, *([state.new] if state.new else [])]:
        gone = min(one.wanted, spare)
        spare -= gone
        if one.wanted:
            found[one.name] = one.wanted - gone
    return found


def _fraction(state: State, one: MachineSet) -> int:
    if state.spec.replicas == 0:
        return -one.wanted
    before = integer(one.annotations.get(keys.MAX_REPLICAS)) or number(
        state.deployment.status.get("replicas")
    )
    size = one.wanted * (state.spec.replicas + state.spec.surge) / before if before else one.wanted
    return math.floor(size + 0.5) - one.wanted
