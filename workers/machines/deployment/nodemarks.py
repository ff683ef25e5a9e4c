"""Marks on nodes while machines roll: for the scheduler, and for the cluster autoscaler."""

from __future__ import annotations

from typing import Any

from windowbox.models import machinekeys as keys
from windowbox.models.objects import Object
from workers.machines.deployment.state import State
from workers.machines.nodes import Nodes, Taint
from workers.machines.sets import MachineSet

LEAVING = Taint(keys.PREFER_NO_SCHEDULE, "True", "PreferNoSchedule")
"""On nodes of old machines: Pods had better go elsewhere."""
_NOT_SCALED_DOWN = {keys.SCALE_DOWN_DISABLED: "true", keys.SCALE_DOWN_DISABLED_BY_US: "true"}


def not_scaled_down(node: Object, patch: dict[str, Any]) -> dict[str, Any]:
    """A patch of a node, with the annotations that keep the cluster autoscaler off, where it lacks them."""
    lacking = {name: value for name, value in _NOT_SCALED_DOWN.items() if node.annotations.get(name) != value}
    if not lacking:
        return patch
    metadata = {**patch.get("metadata", {}), "annotations": lacking}
    return {**patch, "metadata": metadata}


async def begin(nodes: Nodes, state: State) -> list[MachineSet]:
    """Mark what rolls. Returns the sets whose nodes are marked now and were not before."""
    unmarked = [one for one in state.old if keys.PREFER_NO_SCHEDULE not in one.annotations]
    for one in unmarked:
        await nodes.taint(_of(state, one), LEAVING)
    if any(_is_active(one) for one in state.old):
        for one in state.sets:
            await nodes.annotate(_of(state, one), _NOT_SCALED_DOWN)
    return unmarked


async def end(nodes: Nodes, state: State) -> None:
    """Take the marks away again, but not those of machines that are preserved."""
    for one in state.sets:
        for machine in state.machines.get(one.uid, ()):
            node = await nodes.get(machine.node)
            ours = node is not None and keys.SCALE_DOWN_DISABLED_BY_US in node.annotations
            if ours and not machine.preserved_until:
                await nodes.annotate([machine.node], dict.fromkeys(_NOT_SCALED_DOWN))
    if state.new and keys.PREFER_NO_SCHEDULE in state.new.annotations:
        await unmark_set(nodes, state, state.new)


async def unmark_set(nodes: Nodes, state: State, one: MachineSet) -> None:
    """Pods may go to nodes of this set again."""
    if keys.PREFER_NO_SCHEDULE in one.annotations:
        await nodes.untaint(_of(state, one), LEAVING)


def _of(state: State, one: MachineSet) -> list[str]:
    return [machine.node for machine in state.machines.get(one.uid, ()) if machine.node]


def _is_active(one: MachineSet) -> bool:
    return bool(
        one.wanted and one.existing and one.available and one.ready and one.count("fullyLabeledReplicas")
    )
