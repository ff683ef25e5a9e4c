"""Preservation of one failed Machine: its expiry, and the taint and the drain of its node (C12)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from windowbox.models import machinekeys as keys
from windowbox.models.extensions import instant, spelled
from windowbox.models.machines import Phase
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINES, NODES
from windowbox.settings.kindsettings import MachineSettings
from workers.core.owned.targets import TargetCluster, TargetClusters
from workers.machines import facts, preservation
from workers.machines.machine import machinenodes, machinespecs, machinestatus
from workers.machines.machine.machinestatus import MachineRun
from workers.machines.machine.nodedrain import Mode, NodeDrain
from workers.machines.nodes import Taint

_PRESERVED = Taint(keys.PRESERVED, None, "NoSchedule")
_WITH_FAILURE = (preservation.WHEN_FAILED, preservation.AUTO)
_DRAIN_RETRY = 5.0


@dataclass(frozen=True)
class Decision:
    """Whether a Machine is preserved, and the value of the annotation that decided it."""

    preserved: bool
    value: str
    expired: bool = False


def decide(machine: Object, node: Object | None, now: datetime) -> Decision:
    """The decision that follows from the annotations of a Machine and its node."""
    on_node = None if node is None else str(node.annotations.get(keys.PRESERVE, ""))
    value = preservation.effective(facts.machine(machine), on_node)
    expiry = until(machine)
    if expiry is not None and expiry <= now:
        return Decision(False, value, expired=True)
    if on_node and on_node not in preservation.VALUES:
        return Decision(expiry is not None, value)  # an unknown value changes nothing
    failed = machinestatus.phase(machine) == Phase.FAILED
    wanted = value == preservation.NOW or (value in _WITH_FAILURE and (failed or expiry is not None))
    recovered = value == preservation.AUTO and not failed
    return Decision(wanted and not recovered, value, expired=recovered and expiry is not None)


def until(machine: Object) -> datetime | None:
    """The end of a Machine's preservation; None if it is not preserved."""
    return instant(machinestatus.current(machine).get("preserveExpiryTime"))


@dataclass(frozen=True)
class Preserving:
    targets: TargetClusters
    settings: MachineSettings

    async def advance(
        self, run: MachineRun, shoot: TargetCluster, node: Object | None
    ) -> tuple[datetime, str] | None:
        """Begin, continue or end the preservation. Returns when to continue, and what for."""
        decision = decide(run.machine, node, run.now)
        if changes := _annotations(run.machine, node, decision):
            patch: dict[str, Any] = {"metadata": {"uid": run.machine.uid, "annotations": changes}}
            own = self.targets.own_cluster(run.run)
            await own.merge(MACHINES, run.ref.namespace, run.ref.name, patch)
        if not decision.preserved:
            if until(run.machine) is None:
                return None
            await self._expire_at(run, None)
            if node is None:
                return None
            patch = _end_protection(node, forget=decision.expired)
            await shoot.strategic_merge(NODES, "", node.name, patch)
            if machinenodes.condition(node, machinenodes.PRESERVED):
                patch = machinenodes.new_condition(
                    machinenodes.PRESERVED, "False", "Preservation stopped.", "", run.now
                )
                await shoot.strategic_merge(NODES, "", node.name, patch, part="status")
            return None
        if until(run.machine) is None:
            timeout = machinespecs.duration(run.machine.spec.get("machinePreserveTimeout"))
            seconds = self.settings.preserve_timeout if timeout is None else timeout
            await self._expire_at(run, spelled(run.now + timedelta(seconds=seconds)))
        failed, protection = run.phase == Phase.FAILED, dict[str, Any]()
        # Keep the autoscaler away from the node, and new Pods, too, when the machine has failed.
        if node is not None and keys.SCALE_DOWN_DISABLED not in node.annotations:
            named = {keys.SCALE_DOWN_DISABLED: "true", keys.SCALE_DOWN_DISABLED_BY_US: "true"}
            protection["metadata"] = {"annotations": named}
        if node is not None and failed and not _PRESERVED.on(node):
            protection["spec"] = {"taints": _PRESERVED.added(node)}
            protection.setdefault("metadata", {})["resourceVersion"] = node.resource_version
        if node is not None and protection:
            await shoot.strategic_merge(NODES, "", node.name, protection)
        if node is not None and failed and (again := await self._drain(run, shoot, node, decision)):
            return again, "the preserved machine's node is drained further"
        expiry = until(run.machine)
        return (expiry, "its preservation ends then") if expiry else None

    async def _drain(
        self, run: MachineRun, shoot: TargetCluster, node: Object, decision: Decision
    ) -> datetime | None:
        """Drain the node of a failed machine. Returns when to continue; None if the node is empty."""
        if (machinenodes.condition(node, machinenodes.PRESERVED) or {}).get("status") == "True":
            return None
        drain = NodeDrain(shoot, node, run.now, leaves=False, cordons=False)
        if await drain.step(Mode(False, False), evicting=True):
            return run.now + timedelta(seconds=_DRAIN_RETRY)
        by = "MCM" if decision.value == preservation.AUTO else "user"
        last = machinestatus.current(run.machine).get("preserveExpiryTime")
        message = f"Preserved node drained successfully. Machine preserved until {last}."
        patch = machinenodes.new_condition(
            machinenodes.PRESERVED, "True", f"Preserved by {by}.", message, run.now
        )
        await shoot.strategic_merge(NODES, "", node.name, patch, part="status")
        return None

    async def _expire_at(self, run: MachineRun, expiry: str | None) -> None:
        current = {**machinestatus.current(run.machine), "preserveExpiryTime": expiry}
        await run.report({"currentStatus": current, "lastOperation": dict(run.machine.last_operation)})


def _annotations(machine: Object, node: Object | None, decision: Decision) -> dict[str, str | None]:
    """Changes of a Machine's annotations: once its node has had a value, the Machine's own does not count.

    An expired request is removed: it must not start another preservation.
    """
    on_node = str(node.annotations.get(keys.PRESERVE, "")) if node is not None else ""
    last = machine.annotations.get(keys.LAST_PRESERVE)
    forget: dict[str, str | None] = {keys.PRESERVE: None} if keys.PRESERVE in machine.annotations else {}
    if node is not None and (on_node or last) and on_node != (last or ""):
        return {keys.LAST_PRESERVE: on_node, **forget}
    return forget if decision.expired else {}


def _end_protection(node: Object, *, forget: bool) -> dict[str, Any]:
    """The patch that ends the protection of a node; with `forget`, it also removes the request."""
    annotations: dict[str, None] = {}
    if keys.SCALE_DOWN_DISABLED_BY_US in node.annotations:
        annotations = {keys.SCALE_DOWN_DISABLED: None, keys.SCALE_DOWN_DISABLED_BY_US: None}
    if forget and keys.PRESERVE in node.annotations:
        annotations[keys.PRESERVE] = None
    patch: dict[str, Any] = {"metadata": {"uid": node.uid, "annotations": annotations}}
    if _PRESERVED.on(node):
        patch["spec"] = {"taints": _PRESERVED.removed(node)}
        patch["metadata"]["resourceVersion"] = node.resource_version
    return patch
