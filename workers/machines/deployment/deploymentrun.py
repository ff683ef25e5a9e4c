"""The writes of one run of a MachineDeployment: to the deployment, its MachineSets, and their nodes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from windowbox.errors import Conflict, PermanentError, TransientError
from windowbox.models import machinekeys as keys
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINE_DEPLOYMENTS, MACHINE_SETS
from workers.core.recorder import Recorder
from workers.machines import templates
from workers.machines.deployment import deploymentstatus
from workers.machines.deployment.deploymentstate import State
from workers.machines.deployment.deploymentstatus import Condition
from workers.machines.deployment.setsizes import Sizes
from workers.machines.machineobjects import MachineObjects
from workers.machines.nodes import Nodes, Taint
from workers.machines.reporting import StatusReport
from workers.machines.sets import MachineSet, oldest_first

LEAVING = Taint(keys.PREFER_NO_SCHEDULE, "True", "PreferNoSchedule")
"""On nodes of old machines: the scheduler prefers other nodes."""
NOT_SCALED_DOWN = {keys.SCALE_DOWN_DISABLED: "true", keys.SCALE_DOWN_DISABLED_BY_US: "true"}
"""The annotations that keep the cluster autoscaler from removing a node while machines roll."""


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
    """Seconds until the next run, if no event triggers it."""
    node_error: TransientError | PermanentError | None = None
    """Why a node could not be read or patched in an in-place update: the next run retries, with backoff."""
    changed: bool = False

    @property
    def object(self) -> Object:
        return self.state.deployment

    def replace(self, one: MachineSet) -> None:
        """Continue with a newer version of a set."""
        others = [other for other in self.state.sets if other.uid != one.uid]
        self.state = replace(self.state, sets=tuple(oldest_first([*others, one])))
        self.changed = True

    async def patch_deployment(self, patch: dict[str, Any]) -> None:
        """Patch the version of the deployment that this run decides upon."""
        whole = {**patch, "metadata": {**patch.get("metadata", {}), "uid": self.object.uid}}
        version = self.object.resource_version
        patched = await self.objects.patch(MACHINE_DEPLOYMENTS, self.object.name, whole, version)
        if patched is None:
            raise Conflict(f"MachineDeployment {self.object.name} is gone", retry_after=0.1)
        self.state = replace(self.state, deployment=patched)
        self.report.version = patched.resource_version

    async def patch_set(self, one: MachineSet, patch: dict[str, Any]) -> MachineSet:
        """Patch the version of a set that this run decides upon."""
        whole = {**patch, "metadata": {**patch.get("metadata", {}), "uid": one.uid}}
        patched = await self.objects.patch(MACHINE_SETS, one.name, whole, one.object.resource_version)
        if patched is None:
            raise Conflict(f"MachineSet {one.name} is gone", retry_after=0.1)
        self.replace(found := MachineSet(patched))
        return found

    async def scale(self, sizes: Sizes, *, all_annotated: bool = False) -> bool:
        """Give sets their new sizes. True if one has changed."""
        scaled = False
        annotations = self.state.size_annotations
        for one in self.state.sets:
            size = sizes.get(one.name)
            if size is None or one.object.deleting:
                continue
            changed = {k: v for k, v in annotations.items() if one.annotations.get(k) != v}
            if size == one.wanted and not (changed and all_annotated):
                continue
            await self.patch_set(one, {"metadata": {"annotations": changed}, "spec": {"replicas": size}})
            if size != one.wanted:
                scaled = True
                way = "up" if size > one.wanted else "down"
                note = f"Scaled {way} machine set {one.name} to {size}"
                self.report.event("Normal", "ScalingMachineSet", note)
        return scaled

    async def update_newest(self) -> MachineSet | None:
        """Copy changes that replace no machines to the newest set; None without that set."""
        new = self.state.new
        if new and (patch := self.state.set_patch(new)):
            new = await self.patch_set(new, patch)
        return new

    async def ensure_newest(self, replicas: int) -> MachineSet | None:
        """The set of the current template, up to date. None if the next run has to decide."""
        if (new := await self.update_newest()) is None:
            body = self.state.new_set(replicas, self.collisions)
            name = body["metadata"]["name"]
            # A recreated bus may not know all sets: without this list, the template could get a second set.
            known = {one.uid for one in self.state.sets}
            live = [MachineSet(one) for one in await self.objects.listed(MACHINE_SETS)]
            if any(
                one.owner == self.object.uid and one.uid not in known and one.name != name for one in live
            ):
                raise Conflict("the bus does not show all MachineSets yet", retry_after=0.5)
            try:
                new = MachineSet(await self.objects.create(MACHINE_SETS, body))
                self._progress("True", deploymentstatus.CREATED, f'Created new machine set "{name}"')
                if replicas:
                    note = f"Scaled up machine set {name} to {replicas}"
                    self.report.event("Normal", "ScalingMachineSet", note)
            except Conflict:
                found = await self.objects.get(MACHINE_SETS, name)
                if found is None:
                    raise Conflict(f"MachineSet {name} has just gone", retry_after=0.1) from None
                new = MachineSet(found)
                if new.owner != self.object.uid or not templates.same(new.template, self.state.spec.template):
                    # Another template has the same hash: the next run tries the next name.
                    self.collisions += 1
                    return None
            except PermanentError as error:
                message = f'Failed to create new machine set "{name}": {error}'
                self._progress("False", deploymentstatus.CREATE_ERROR, message)
                self.report.event("Warning", deploymentstatus.CREATE_ERROR, message)
                return None
            self.replace(new)
        # The run that created the set may have ended before its report.
        progressing = deploymentstatus.condition(self.report.shown, deploymentstatus.PROGRESSING)
        if not progressing and not self.conditions:
            self._progress("True", deploymentstatus.FOUND, f'Found new machine set "{new.name}"')
        revision = str(self.state.revision)
        if self.object.annotations.get(keys.REVISION) != revision:
            await self.patch_deployment({"metadata": {"annotations": {keys.REVISION: revision}}})
        return new

    def _progress(self, status: Literal["True", "False"], reason: str, message: str) -> None:
        self.conditions.append(Condition(deploymentstatus.PROGRESSING, status, reason, message))

    async def remove_surplus(self) -> None:
        """Delete old sets beyond the revision history."""
        for one in self.state.surplus:
            await self.objects.delete(MACHINE_SETS, one.name, one.uid)
            self.changed = True

    async def mark_nodes(self) -> None:
        """Taint the nodes of old sets, and keep the autoscaler off all nodes while machines roll."""
        unmarked = [one for one in self.state.old if keys.PREFER_NO_SCHEDULE not in one.annotations]
        for one in unmarked:
            await self.nodes.taint(self.state.nodes(one), LEAVING)
        counts = ("replicas", "availableReplicas", "readyReplicas", "fullyLabeledReplicas")
        if any(one.wanted and all(map(one.count, counts)) for one in self.state.old):
            for one in self.state.sets:
                await self.nodes.annotate(self.state.nodes(one), NOT_SCALED_DOWN)
        # The annotation of a set records that its nodes have been tainted.
        for one in unmarked:
            await self.patch_set(one, {"metadata": {"annotations": {keys.PREFER_NO_SCHEDULE: "True"}}})

    async def unmark_nodes(self) -> None:
        """Remove the marks after a roll-out, but keep the autoscaler off preserved machines."""
        for one in self.state.sets:
            for machine in self.state.machines.get(one.uid, ()):
                node = await self.nodes.get(machine.node)
                ours = node is not None and keys.SCALE_DOWN_DISABLED_BY_US in node.annotations
                if ours and not machine.preserved_until:
                    await self.nodes.annotate([machine.node], dict.fromkeys(NOT_SCALED_DOWN))
        if self.state.new:
            await self.untaint_nodes(self.state.new)

    async def untaint_nodes(self, one: MachineSet) -> None:
        """Allow Pods on the nodes of a set again."""
        if keys.PREFER_NO_SCHEDULE in one.annotations:
            await self.nodes.taint(self.state.nodes(one), LEAVING, wanted=False)

    async def forget_taint(self, one: MachineSet) -> None:
        """Remove the record that the nodes of a set are tainted."""
        if keys.PREFER_NO_SCHEDULE in one.annotations:
            await self.patch_set(one, {"metadata": {"annotations": {keys.PREFER_NO_SCHEDULE: None}}})
