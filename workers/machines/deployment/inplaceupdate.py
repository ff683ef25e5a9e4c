"""Updates in place: machines of old sets become machines of the new one, once their nodes are updated.

Signals are labels of nodes: here nodes become candidates, and are selected; the driver empties a node that is
selected, and the node agent says how its update ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from windowbox.errors import Conflict, TransientError
from windowbox.models import machinekeys as keys
from windowbox.models.machines import Phase
from windowbox.models.objects import Object, mapping, mappings
from windowbox.models.refs import MACHINES
from workers.machines import facts
from workers.machines.deployment import nodemarks, rolling, rollout, status
from workers.machines.deployment.rollout import DeploymentRun
from workers.machines.deployment.state import State
from workers.machines.facts import MachineFacts
from workers.machines.nodes import Taint
from workers.machines.sets import MachineSet

_UPDATED = "UpdateSuccessful"
_NOT_READY = Taint(keys.CRITICAL_COMPONENTS, "", "NoSchedule")
"""No Pods but those that the node needs itself, until those run."""
_CONFLICT_RETRY = 1.0

Json = dict[str, Any]


async def update(run: DeploymentRun) -> None:
    """One step: nodes are marked, machines handed over, sets sized, or nodes selected."""
    new = await rollout.new_set(run, rolling.first_size(run.state))
    if new is None:
        return
    if any(one.wanted or run.state.living(one) for one in run.state.old):
        await _mark_sets(run)
        await _mark_nodes(run)
    else:
        await unmark_newest(run)
    changed = await _finish_transfers(run) or await _shrink_to_existing(run)
    new = run.state.new or new
    if changed or await _grow(run, new) or await _shrink(run, new):
        return
    written = run.again is None and run.node_error is None
    if written and status.complete(run.state, status.counts(run.state)):
        await nodemarks.end(run.nodes, run.state)
        await rollout.clean_up(run)


def candidate(node: Object) -> Json:
    """The patch that makes a node one that is to be updated; empty if it is."""
    patch: Json = {}
    if node.labels.get(keys.CANDIDATE) != "true":
        patch["metadata"] = {"labels": {keys.CANDIDATE: "true"}}
    if not nodemarks.LEAVING.on(node):
        patch["spec"] = {"taints": nodemarks.LEAVING.added(node)}
    return patch


def no_candidate(node: Object) -> Json:
    """The same for a node whose machine has the newest template again, before anything was done to it."""
    if keys.CANDIDATE not in node.labels or keys.SELECTED in node.labels or keys.UPDATE_RESULT in node.labels:
        return {}
    patch: Json = {"metadata": {"labels": {keys.CANDIDATE: None}}}
    if nodemarks.LEAVING.on(node):
        patch["spec"] = {"taints": nodemarks.LEAVING.removed(node) or None}
    return patch


def updated(node: Object) -> Json:
    """The patch that takes all marks of an update off a node; empty if its update has not succeeded."""
    if not is_updated(node):
        return {}
    marks = (keys.CANDIDATE, keys.SELECTED, keys.UPDATE_RESULT)
    labels = {name: None for name in marks if name in node.labels}
    metadata: Json = {"labels": labels, "annotations": {keys.UPDATE_FAILED_REASON: None}}
    kept = Object({**node.raw, "spec": {**node.spec, "taints": nodemarks.LEAVING.removed(node)}})
    return {"metadata": metadata, "spec": {"unschedulable": None, "taints": _NOT_READY.added(kept)}}


def is_updated(node: Object) -> bool:
    said = mappings(node.status.get("conditions"))
    reasons = [one.get("reason") for one in said if one.get("type") == "InPlaceUpdate"]
    return reasons == [_UPDATED] and node.labels.get(keys.UPDATE_RESULT) == keys.SUCCESSFUL


def selectable(state: State, new: MachineSet, nodes: dict[str, Object]) -> list[str]:
    """The nodes to be selected now: with those that are, no more than may be unavailable."""
    selected = {name for name, node in nodes.items() if keys.SELECTED in node.labels}
    old = [machine for one in state.old for machine in _living(state, one)]
    everything = [*old, *_living(state, new)]
    serving = sum(one.available and one.node not in selected for one in everything)
    coming = new.wanted + sum(one.node in selected for one in old)
    room = min(serving - state.spec.min_available, state.spec.replicas - coming)
    waiting = [
        one.node
        for one in old
        if one.node in nodes and keys.CANDIDATE in nodes[one.node].labels and one.node not in selected
    ]
    return waiting[: max(0, room)]


def handed_over(machine: MachineFacts, old: MachineSet, new: MachineSet) -> Json:
    """The patch by which a machine becomes one of the new set.

    Gardener's own leaves the class as it was, so that old classes stay until their machines are gone.
    """
    before: Json = dict.fromkeys(_labels(old))
    template = mapping(new.template.get("spec"))
    metadata = {
        "uid": machine.uid,
        "ownerReferences": [facts.owner_reference(new.object, "MachineSet")],
        "labels": {**before, **_labels(new), keys.UPDATE_RESULT: keys.SUCCESSFUL},
    }
    return {"metadata": metadata, "spec": {"class": dict(mapping(template.get("class")))}}


async def unmark_newest(run: DeploymentRun) -> None:
    """Take off the newest set and its nodes what they got as old ones: a template may be reverted."""
    new = run.state.new
    if new is None:
        return
    for machine in _living(run.state, new):
        node = await run.nodes.get(machine.node)
        if node is not None:
            await _patch(run, node, no_candidate(node))
    await _let_grow(run, new)


async def _mark_sets(run: DeploymentRun) -> None:
    """Machines that are handed over must not be made again in the set that they leave."""
    for one in run.state.old:
        if keys.SCALE_UP_DISABLED not in one.labels:
            await rollout.patch_set(run, one, {"metadata": {"labels": {keys.SCALE_UP_DISABLED: "true"}}})
    if run.state.new:
        await _let_grow(run, run.state.new)


async def _let_grow(run: DeploymentRun, new: MachineSet) -> None:
    if keys.SCALE_UP_DISABLED in new.labels:
        await rollout.patch_set(run, new, {"metadata": {"labels": {keys.SCALE_UP_DISABLED: None}}})


async def _mark_nodes(run: DeploymentRun) -> None:
    for one in run.state.sets:
        is_new = run.state.new is not None and one.uid == run.state.new.uid
        for machine in _living(run.state, one):
            node = await run.nodes.get(machine.node)
            if node is not None:
                patch = no_candidate(node) if is_new else candidate(node)
                await _patch(run, node, nodemarks.not_scaled_down(node, patch))


async def _finish_transfers(run: DeploymentRun) -> bool:
    """Count machines that were handed over, then treat them as all others. True if a set has changed."""
    new = run.state.new
    if new is None:
        return False
    machines = _living(run.state, new)
    arrived = [one for one in machines if one.labels.get(keys.UPDATE_RESULT) == keys.SUCCESSFUL]
    size = new.wanted + min(len(arrived), max(0, len(machines) - new.wanted))
    scaled = await rollout.scale(run, {new.name: size})
    for one in arrived:
        patch = {"metadata": {"uid": one.uid, "labels": {keys.UPDATE_RESULT: None}}}
        await run.objects.patch(MACHINES, one.name, patch)
    for one in machines:
        node = await run.nodes.get(one.node)
        if node is not None:
            await _patch(run, node, updated(node))
    return scaled


async def _shrink_to_existing(run: DeploymentRun) -> bool:
    """Old sets want no more machines than they have."""
    if all(len(run.state.machines.get(one.uid, ())) >= one.wanted for one in run.state.old):
        return False
    # What is seen on the bus may be older than what their sets have made.
    live = await run.objects.machines()
    existing = {one.name: sum(machine.owner == one.uid for machine in live) for one in run.state.old}
    return await rollout.scale(run, {one.name: min(one.wanted, existing[one.name]) for one in run.state.old})


async def _grow(run: DeploymentRun, new: MachineSet) -> bool:
    """The new set takes over machines that are updated, and makes those that no old set has."""
    replicas, old = run.state.spec.replicas, sum(one.wanted for one in run.state.old)
    if new.wanted >= replicas or new.wanted + old < replicas:
        return await rollout.scale(run, {new.name: min(replicas, max(replicas - old, new.wanted))})
    sizes = {new.name: new.wanted}
    for one in run.state.old:
        gone = await _hand_over(run, one, new)
        sizes |= {one.name: max(0, one.wanted - gone), new.name: sizes[new.name] + gone}
    return await rollout.scale(run, sizes)


async def _hand_over(run: DeploymentRun, old: MachineSet, new: MachineSet) -> int:
    done = 0
    for one in _living(run.state, old):
        node = await run.nodes.get(one.node)
        if node is None or one.update != _UPDATED or one.phase == Phase.IN_PLACE_UPDATING:
            continue
        # What is seen on the bus may be older than its hand-over, which must not be counted twice.
        patch = handed_over(one, old, new)
        if is_updated(node) and await run.objects.patch(MACHINES, one.name, patch, one.version):
            done += 1
    return done


async def _shrink(run: DeploymentRun, new: MachineSet) -> bool:
    """Have nodes updated; machines that the new set does not need go."""
    active = [one for one in run.state.old if one.wanted]
    if new.wanted == run.state.spec.replicas:
        return await rollout.scale(run, {one.name: 0 for one in active})
    if run.state.spec.manual or not active:
        return False
    # Who was selected a moment ago may not be seen on the bus yet.
    try:
        machines = [one for owned in run.state.machines.values() for one in owned]
        nodes = await run.nodes.live({one.node for one in machines if one.node})
    except TransientError as error:
        run.node_error = error
        return False
    names = selectable(run.state, new, nodes)
    for name in names:
        await _patch(run, nodes[name], {"metadata": {"labels": {keys.SELECTED: "true"}}})
    return bool(names)


async def _patch(run: DeploymentRun, node: Object, patch: Json) -> None:
    if not patch or (error := await run.nodes.patch(node, patch)) is None:
        return
    if isinstance(error, Conflict):
        run.again = _CONFLICT_RETRY
    else:
        run.node_error = error


def _living(state: State, one: MachineSet) -> list[MachineFacts]:
    machines: Iterable[MachineFacts] = state.machines.get(one.uid, ())
    return [machine for machine in machines if not machine.terminating]


def _labels(one: MachineSet) -> dict[str, str]:
    return facts.strings(mapping(mapping(one.template.get("metadata")).get("labels")))
