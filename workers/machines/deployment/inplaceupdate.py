"""In-place updates: machines move from old sets to the new one, once their nodes are updated.

The signals are labels of nodes: this module makes nodes candidates and selects them, the pool `machine`
drains selected nodes, and gardener-node-agent reports the results of their updates.
"""

from __future__ import annotations

from typing import Any

from windowbox.errors import Conflict, TransientError
from windowbox.models import machinekeys as keys
from windowbox.models.machines import Phase
from windowbox.models.objects import Object, mapping, mappings
from windowbox.models.refs import MACHINES
from workers.machines import facts
from workers.machines.deployment import deploymentstatus, setsizes
from workers.machines.deployment.deploymentrun import LEAVING, NOT_SCALED_DOWN, DeploymentRun
from workers.machines.deployment.deploymentstate import State
from workers.machines.facts import MachineFacts
from workers.machines.nodes import Taint
from workers.machines.sets import MachineSet

_UPDATED = "UpdateSuccessful"
_NOT_READY = Taint(keys.CRITICAL_COMPONENTS, "", "NoSchedule")
"""Keeps Pods off an updated node until its critical components run."""
_CONFLICT_RETRY = 1.0

Json = dict[str, Any]


async def update(run: DeploymentRun) -> None:
    """One step: nodes are marked, machines handed over, sets sized, or nodes selected."""
    new = await run.ensure_newest(setsizes.first_size(run.state))
    if new is None:
        return
    if any(one.wanted or run.state.living(one) for one in run.state.old):
        for one in run.state.old:
            # A set must not recreate machines that it hands over.
            if keys.SCALE_UP_DISABLED not in one.labels:
                await run.patch_set(one, {"metadata": {"labels": {keys.SCALE_UP_DISABLED: "true"}}})
        if run.state.new:
            await _enable_scale_up(run, run.state.new)
        # The nodes of old sets become candidates; the autoscaler is kept off all nodes.
        for one in run.state.sets:
            is_new = run.state.new is not None and one.uid == run.state.new.uid
            for machine in run.state.living(one):
                if (node := await run.nodes.get(machine.node)) is None:
                    continue
                patch, found = no_candidate(node) if is_new else candidate(node), node.annotations
                if lacking := {k: v for k, v in NOT_SCALED_DOWN.items() if found.get(k) != v}:
                    patch = {**patch, "metadata": {**patch.get("metadata", {}), "annotations": lacking}}
                await _patch(run, node, patch)
    else:
        await unmark_newest(run)
    if await _finish_transfers(run):
        return
    old = run.state.old
    if any(len(run.state.machines.get(one.uid, ())) < one.wanted for one in old):
        # Old sets shrink to their existing machines. The bus may not show yet those that were just created.
        live = await run.objects.machines()
        existing = {one.name: sum(machine.owner == one.uid for machine in live) for one in old}
        if await run.scale({one.name: min(one.wanted, existing[one.name]) for one in old}):
            return
    new = run.state.new or new
    if await _take_over(run, new) or await _select_nodes(run, new):
        return
    written = run.again is None and run.node_error is None
    if written and deploymentstatus.complete(run.state):
        await run.unmark_nodes()
        await run.remove_surplus()


def candidate(node: Object) -> Json:
    """The patch that makes a node a candidate for an update; empty if it is one."""
    patch: Json = {}
    if node.labels.get(keys.CANDIDATE) != "true":
        patch["metadata"] = {"labels": {keys.CANDIDATE: "true"}}
    if not LEAVING.on(node):
        patch["spec"] = {"taints": LEAVING.added(node)}
    return patch


def no_candidate(node: Object) -> Json:
    """The patch for a node whose machine has the current template again, unless its update has begun."""
    if keys.CANDIDATE not in node.labels or keys.SELECTED in node.labels or keys.UPDATE_RESULT in node.labels:
        return {}
    patch: Json = {"metadata": {"labels": {keys.CANDIDATE: None}}}
    if LEAVING.on(node):
        patch["spec"] = {"taints": LEAVING.removed(node) or None}
    return patch


def updated(node: Object) -> Json:
    """The patch that removes all marks of an update from a node; empty if its update has not succeeded."""
    if not is_updated(node):
        return {}
    marks = (keys.CANDIDATE, keys.SELECTED, keys.UPDATE_RESULT)
    labels = {name: None for name in marks if name in node.labels}
    metadata: Json = {"labels": labels, "annotations": {keys.UPDATE_FAILED_REASON: None}}
    kept = Object({**node.raw, "spec": {**node.spec, "taints": LEAVING.removed(node)}})
    return {"metadata": metadata, "spec": {"unschedulable": None, "taints": _NOT_READY.added(kept)}}


def is_updated(node: Object) -> bool:
    conditions = mappings(node.status.get("conditions"))
    reasons = [one.get("reason") for one in conditions if one.get("type") == "InPlaceUpdate"]
    return reasons == [_UPDATED] and node.labels.get(keys.UPDATE_RESULT) == keys.SUCCESSFUL


def selectable(state: State, new: MachineSet, nodes: dict[str, Object]) -> list[str]:
    """The nodes to select now: together with selected nodes, no more than may be unavailable."""
    selected = {name for name, node in nodes.items() if keys.SELECTED in node.labels}
    old = [machine for one in state.old for machine in state.living(one)]
    serving = sum(one.available and one.node not in selected for one in [*old, *state.living(new)])
    # A selected machine will belong to the new set, which must not grow beyond the replicas.
    coming = new.wanted + sum(one.node in selected for one in old)
    room = min(serving - state.spec.min_available, state.spec.replicas - coming)
    waiting = [
        one.node
        for one in old
        if one.node in nodes and keys.CANDIDATE in nodes[one.node].labels and one.node not in selected
    ]
    return waiting[: max(0, room)]


def handed_over(machine: MachineFacts, old: MachineSet, new: MachineSet) -> Json:
    """The patch that moves a machine to the new set.

    Gardener's own controller keeps the class, so that old classes stay until their machines are gone.
    """
    of_old, of_new = (
        facts.strings(mapping(mapping(one.template.get("metadata")).get("labels"))) for one in (old, new)
    )
    removed: Json = dict.fromkeys(of_old)
    metadata = {
        "uid": machine.uid,
        "ownerReferences": [facts.owner_reference(new.object, "MachineSet")],
        "labels": {**removed, **of_new, keys.UPDATE_RESULT: keys.SUCCESSFUL},
    }
    return {
        "metadata": metadata,
        "spec": {"class": dict(mapping(mapping(new.template.get("spec")).get("class")))},
    }


async def unmark_newest(run: DeploymentRun) -> None:
    """Remove the marks of an old set from the newest one and its nodes: a template may have been reverted."""
    new = run.state.new
    if new is None:
        return
    for machine in run.state.living(new):
        node = await run.nodes.get(machine.node)
        if node is not None:
            await _patch(run, node, no_candidate(node))
    await _enable_scale_up(run, new)


async def _enable_scale_up(run: DeploymentRun, new: MachineSet) -> None:
    if keys.SCALE_UP_DISABLED in new.labels:
        await run.patch_set(new, {"metadata": {"labels": {keys.SCALE_UP_DISABLED: None}}})


async def _finish_transfers(run: DeploymentRun) -> bool:
    """Count the machines that were handed over, then treat them as all others. True if a set has changed."""
    new = run.state.new
    if new is None:
        return False
    machines = run.state.living(new)
    arrived = [one for one in machines if one.labels.get(keys.UPDATE_RESULT) == keys.SUCCESSFUL]
    size = new.wanted + min(len(arrived), max(0, len(machines) - new.wanted))
    # The size comes first: without their label, machines beyond it would be deleted.
    scaled = await run.scale({new.name: size})
    for one in arrived:
        patch = {"metadata": {"uid": one.uid, "labels": {keys.UPDATE_RESULT: None}}}
        await run.objects.patch(MACHINES, one.name, patch)
    for one in machines:
        node = await run.nodes.get(one.node)
        if node is not None:
            await _patch(run, node, updated(node))
    return scaled


async def _take_over(run: DeploymentRun, new: MachineSet) -> bool:
    """Hand updated machines to the new set, and size it for machines that no old set has."""
    replicas, old = run.state.spec.replicas, sum(one.wanted for one in run.state.old)
    # Machines of the missing difference are created, not handed over: no old set has them.
    if new.wanted >= replicas or new.wanted + old < replicas:
        return await run.scale({new.name: min(replicas, max(replicas - old, new.wanted))})
    sizes = {new.name: new.wanted}
    for one in run.state.old:
        taken = 0
        for machine in run.state.living(one):
            node = await run.nodes.get(machine.node)
            if node is None or machine.update != _UPDATED or machine.phase == Phase.IN_PLACE_UPDATING:
                continue
            # With the version: the bus may not show yet an earlier hand-over, which must not count twice.
            patch = handed_over(machine, one, new)
            if is_updated(node) and await run.objects.patch(MACHINES, machine.name, patch, machine.version):
                taken += 1
        sizes |= {one.name: max(0, one.wanted - taken), new.name: sizes[new.name] + taken}
    return await run.scale(sizes)


async def _select_nodes(run: DeploymentRun, new: MachineSet) -> bool:
    """Select nodes for an update. Once the new set is complete, remove the machines of old sets instead."""
    active = [one for one in run.state.old if one.wanted]
    if new.wanted == run.state.spec.replicas:
        return await run.scale({one.name: 0 for one in active})
    if run.state.spec.manual or not active:
        return False
    # The bus may not show yet the nodes that the last run selected.
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
    # Machines matter more than marks of nodes: the run continues to its status, and patches nodes later.
    if isinstance(error, Conflict):
        run.again = _CONFLICT_RETRY
    else:
        run.node_error = error
