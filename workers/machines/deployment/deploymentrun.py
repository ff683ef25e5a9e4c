"""One step of a MachineDeployment, done: sets made, sized and removed, nodes marked."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from windowbox.errors import Conflict, PermanentError, TransientError
from windowbox.models import machinekeys as keys
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES
from workers.core.recorder import Recorder
from workers.machines import templates
from workers.machines.deployment import machinesets, nodemarks, rolling, scaling, status
from workers.machines.deployment.autoscaling import Chosen
from workers.machines.deployment.rollback import Rollback
from workers.machines.deployment.rolling import Sizes
from workers.machines.deployment.state import State
from workers.machines.deployment.status import Condition
from workers.machines.nodes import Nodes
from workers.machines.objects import MachineObjects
from workers.machines.reporting import StatusReport
from workers.machines.sets import MachineSet, oldest_first


@dataclass
class DeploymentRun:
    """A MachineDeployment as this run sees it, and what it reports."""

    state: State
    objects: MachineObjects
    nodes: Nodes
    report: StatusReport
    recorder: Recorder
    now: datetime
    conditions: list[Condition] = field(default_factory=list)
    collisions: int = 0
    again: float | None = None
    """Seconds until the next run, where nothing else starts it."""
    node_error: TransientError | PermanentError | None = None
    """Why a node that is updated in place could not be changed or read: try again, ever later."""
    changed: bool = False

    @property
    def object(self) -> Object:
        return self.state.deployment

    def replace(self, one: MachineSet) -> None:
        """Go on with a newer version of a set."""
        others = [other for other in self.state.sets if other.uid != one.uid]
        self.state = replace(self.state, sets=tuple(oldest_first([*others, one])))
        self.changed = True


async def mark_chosen(run: DeploymentRun, chosen: Chosen) -> None:
    """Have the machines that the autoscaler has chosen go first."""
    for machine, since in chosen.marks:
        annotations = {keys.PRIORITY: "1", keys.MARKED_FOR_DELETION: since}
        patch = {"metadata": {"uid": machine.uid, "annotations": annotations}}
        await run.objects.patch(MACHINES, machine.name, patch)
    if chosen.annotation != run.object.annotations.get(keys.TRIGGER_DELETION):
        await write(run, {"annotations": {keys.TRIGGER_DELETION: chosen.annotation}})


async def roll_back(run: DeploymentRun, to: Rollback) -> None:
    """Return to a former template. The change of the deployment has the next run roll."""
    if to.to:
        await nodemarks.unmark_set(run.nodes, run.state, to.to)
        await _forget_mark(run, to.to)
    run.report.event(to.type, to.reason, to.note)
    await _patch(run, to.patch)


async def write(run: DeploymentRun, metadata: dict[str, Any]) -> None:
    """Change the deployment's metadata, if there is anything to change."""
    if metadata:
        await _patch(run, {"metadata": metadata})


async def _patch(run: DeploymentRun, patch: dict[str, Any]) -> None:
    whole = {**patch, "metadata": {**patch.get("metadata", {}), "uid": run.object.uid}}
    version = run.object.resource_version
    patched = await run.objects.patch(MACHINE_DEPLOYMENTS, run.object.name, whole, version)
    if patched is None:
        raise Conflict(f"MachineDeployment {run.object.name} is gone", retry_after=0.1)
    run.state = replace(run.state, deployment=patched)
    run.report.version = patched.resource_version


async def roll(run: DeploymentRun) -> None:
    new = await new_set(run, rolling.first_size(run.state))
    if new is None:
        return
    for one in await nodemarks.begin(run.nodes, run.state):
        await _remember_mark(run, one)
    scaled = await scale(run, rolling.step(run.state, run.state.new or new))
    if not scaled and status.complete(run.state, status.counts(run.state)):
        await nodemarks.end(run.nodes, run.state)
        if run.state.new:
            await _forget_mark(run, run.state.new)
        await clean_up(run)


async def recreate(run: DeploymentRun) -> None:
    """Old machines go first; the new set is made when none is left."""
    if await scale(run, {one.name: 0 for one in run.state.old if one.wanted > 0}):
        return
    if any(run.state.machines.get(one.uid) or one.existing for one in run.state.old):
        return
    new = await new_set(run, run.state.spec.replicas)
    if new and new.wanted != run.state.spec.replicas:
        await scale(run, {new.name: run.state.spec.replicas})
    elif status.complete(run.state, status.counts(run.state)):
        await clean_up(run)


async def new_set(run: DeploymentRun, replicas: int) -> MachineSet | None:
    """The set of the template as it is now, up to date. None if it has to be looked at again."""
    new = await follow(run) or await _make_set(run, replicas)
    if new is None:
        return None
    if not status.condition(run.report.shown, status.PROGRESSING) and not run.conditions:
        message = f'Found new machine set "{new.name}"'
        run.conditions.append(Condition(status.PROGRESSING, "True", status.FOUND, message))
    revision = str(machinesets.revision(run.state))
    if run.object.annotations.get(keys.REVISION) != revision:
        await write(run, {"annotations": {keys.REVISION: revision}})
    return new


async def follow(run: DeploymentRun) -> MachineSet | None:
    """Copy to the newest set what of the deployment replaces no machines; None if there is no such set."""
    new = run.state.new
    if new and (patch := machinesets.changes(run.state, new)):
        new = await patch_set(run, new, patch)
    return new


async def _make_set(run: DeploymentRun, replicas: int) -> MachineSet | None:
    body = machinesets.made(run.state, replicas, run.collisions)
    name = body["metadata"]["name"]
    # A bus that was made anew may not know of sets that are there.
    known = {one.uid for one in run.state.sets}
    live = [MachineSet(one) for one in await run.objects.listed(MACHINE_SETS)]
    if any(one.owner == run.object.uid and one.uid not in known and one.name != name for one in live):
        raise Conflict("the bus has not told of all MachineSets yet", retry_after=0.5)
    try:
        new = MachineSet(await run.objects.create(MACHINE_SETS, body))
    except Conflict:
        return await _existing(run, name)
    except PermanentError as error:
        message = f'Failed to create new machine set "{name}": {error}'
        run.conditions.append(Condition(status.PROGRESSING, "False", status.CREATE_ERROR, message))
        run.report.event("Warning", status.CREATE_ERROR, message)
        return None
    run.replace(new)
    message = f'Created new machine set "{name}"'
    run.conditions.append(Condition(status.PROGRESSING, "True", status.CREATED, message))
    if replicas:
        run.report.event("Normal", "ScalingMachineSet", f"Scaled up machine set {name} to {replicas}")
    return new


async def _existing(run: DeploymentRun, name: str) -> MachineSet | None:
    """A set of this name that the bus has not told of yet, unless it is another's."""
    found = await run.objects.get(MACHINE_SETS, name)
    if found is None:
        raise Conflict(f"MachineSet {name} has just gone", retry_after=0.1)
    one = MachineSet(found)
    if one.owner == run.object.uid and templates.same(one.template, run.state.spec.template):
        run.replace(one)
        return one
    run.collisions += 1
    return None


async def scale(run: DeploymentRun, sizes: Sizes, *, all_annotated: bool = False) -> bool:
    """Give sets their new sizes. True if one has changed."""
    scaled = False
    annotations = scaling.noted(run.state)
    for one in run.state.sets:
        size = sizes.get(one.name)
        if size is None or one.object.deleting:
            continue
        changed = {k: v for k, v in annotations.items() if one.annotations.get(k) != v}
        if size == one.wanted and not (changed and all_annotated):
            continue
        await patch_set(run, one, {"metadata": {"annotations": changed}, "spec": {"replicas": size}})
        if size != one.wanted:
            scaled = True
            way = "up" if size > one.wanted else "down"
            run.report.event("Normal", "ScalingMachineSet", f"Scaled {way} machine set {one.name} to {size}")
    return scaled


async def patch_set(run: DeploymentRun, one: MachineSet, patch: dict[str, Any]) -> MachineSet:
    """Change the version of a set that was decided upon."""
    whole = {**patch, "metadata": {**patch.get("metadata", {}), "uid": one.uid}}
    patched = await run.objects.patch(MACHINE_SETS, one.name, whole, one.object.resource_version)
    if patched is None:
        raise Conflict(f"MachineSet {one.name} is gone", retry_after=0.1)
    run.replace(found := MachineSet(patched))
    return found


async def _remember_mark(run: DeploymentRun, one: MachineSet) -> None:
    await patch_set(run, one, {"metadata": {"annotations": {keys.PREFER_NO_SCHEDULE: "True"}}})


async def _forget_mark(run: DeploymentRun, one: MachineSet) -> None:
    if keys.PREFER_NO_SCHEDULE in one.annotations:
        await patch_set(run, one, {"metadata": {"annotations": {keys.PREFER_NO_SCHEDULE: None}}})


async def clean_up(run: DeploymentRun) -> None:
    for one in machinesets.surplus(run.state):
        await run.objects.delete(MACHINE_SETS, one.name, one.uid)
        run.changed = True
