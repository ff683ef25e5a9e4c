"""Preservation of one failed Machine: its expiry, its node's taint and drain (C12)."""

from __future__ import annotations

from collections.abc import Mapping
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
from workers.machines.facts import node_taints
from workers.machines.machine import nodes, specs, statuses
from workers.machines.machine.drain import Mode
from workers.machines.machine.evictions import Evictions
from workers.machines.machine.run import MachineRun

_TAINT = {"key": keys.PRESERVED, "effect": "NoSchedule"}
_CONDITION = "Preserved"
_WITH_FAILURE = (preservation.WHEN_FAILED, preservation.AUTO)
_DRAIN_RETRY = 5.0


@dataclass(frozen=True)
class Decision:
    """Whether a Machine is preserved, and from whom that comes."""

    preserved: bool
    value: str
    expired: bool = False


def decide(machine: Object, node: Object | None, now: datetime) -> Decision:
    """What the annotations of a Machine and its node ask for."""
    on_node = None if node is None else str(node.annotations.get(keys.PRESERVE, ""))
    value = preservation.effective(facts.machine(machine), on_node)
    expiry = until(machine)
    if expiry is not None and expiry <= now:
        return Decision(False, value, expired=True)
    if on_node and on_node not in preservation.VALUES:
        return Decision(expiry is not None, value)  # nobody knows what it means: nothing changes
    failed = statuses.phase(machine) == Phase.FAILED
    wanted = value == preservation.NOW or (value in _WITH_FAILURE and (failed or expiry is not None))
    recovered = value == preservation.AUTO and not failed
    return Decision(wanted and not recovered, value, expired=recovered and expiry is not None)


def until(machine: Object) -> datetime | None:
    return instant(statuses.current(machine).get("preserveExpiryTime"))


@dataclass(frozen=True)
class Preserving:
    targets: TargetClusters
    settings: MachineSettings

    async def run(
        self, run: MachineRun, shoot: TargetCluster, node: Object | None
    ) -> tuple[datetime, str] | None:
        """Begin to preserve the Machine, or end it. Returns when to look again, and what for."""
        decision = decide(run.machine, node, run.now)
        await self._remember(run, node, decision)
        if decision.preserved and until(run.machine) is None:
            await self._expire_at(run, spelled(run.now + timedelta(seconds=self._timeout(run))))
        if not decision.preserved:
            if until(run.machine) is not None:
                await self._release(run, shoot, node, decision)
            return None
        if node is not None:
            patch = _held(node, tainted=run.phase == Phase.FAILED)
            if patch:
                await shoot.strategic_merge(NODES, "", node.name, patch)
            if run.phase == Phase.FAILED and (again := await self._drained(run, shoot, node, decision)):
                return again, "the preserved machine's node is drained further"
        expiry = until(run.machine)
        return (expiry, "its preservation ends then") if expiry else None

    def _timeout(self, run: MachineRun) -> float:
        found = run.machine.spec.get("machinePreserveTimeout")
        seconds = specs.duration(found)
        return self.settings.preserve_timeout if seconds is None else seconds

    async def _drained(
        self, run: MachineRun, shoot: TargetCluster, node: Object, decision: Decision
    ) -> datetime | None:
        """Empty the node of a failed machine. Returns when to go on with that."""
        said = next((one for one in nodes.conditions(node) if one["type"] == _CONDITION), None)
        if said and said["status"] == "True":
            return None
        if await Evictions(shoot, node, run.now, leaves=False, cordons=False).step(
            Mode(False, False), evicting=True
        ):
            return run.now + timedelta(seconds=_DRAIN_RETRY)
        by = "MCM" if decision.value == preservation.AUTO else "user"
        last = statuses.current(run.machine).get("preserveExpiryTime")
        message = f"Preserved node drained successfully. Machine preserved until {last}."
        await _tell(shoot, node, "True", f"Preserved by {by}.", message, run.now)
        return None

    async def _release(
        self, run: MachineRun, shoot: TargetCluster, node: Object | None, decision: Decision
    ) -> None:
        """Let the Machine go its way again; what was asked for once is not asked for twice."""
        await self._expire_at(run, None)
        if node is None:
            return
        patch = _freed(node, forget=decision.expired)
        await shoot.strategic_merge(NODES, "", node.name, patch)
        if any(one["type"] == _CONDITION for one in nodes.conditions(node)):
            await _tell(shoot, node, "False", "Preservation stopped.", "", run.now)

    async def _remember(self, run: MachineRun, node: Object | None, decision: Decision) -> None:
        """The last value of the node; the Machine's own counts no more, once the node has had one."""
        changes: dict[str, str | None] = {}
        on_node = str(node.annotations.get(keys.PRESERVE, "")) if node is not None else ""
        last = run.machine.annotations.get(keys.LAST_PRESERVE)
        if node is not None and (on_node or last) and on_node != (last or ""):
            changes[keys.LAST_PRESERVE] = on_node
            if keys.PRESERVE in run.machine.annotations:
                changes[keys.PRESERVE] = None
        elif decision.expired and keys.PRESERVE in run.machine.annotations:
            changes[keys.PRESERVE] = None
        if changes:
            patch = {"metadata": {"uid": run.machine.uid, "annotations": changes}}
            own = self.targets.own_cluster(run.run)
            await own.merge(MACHINES, run.ref.namespace, run.ref.name, patch)

    async def _expire_at(self, run: MachineRun, expiry: str | None) -> None:
        last = run.machine.last_operation
        current = {**statuses.current(run.machine), "preserveExpiryTime": expiry}
        await run.report({"currentStatus": current, "lastOperation": dict(last)})


def _held(node: Object, *, tainted: bool) -> dict[str, Any] | None:
    """The patch that keeps the autoscaler, and new Pods, away from a node."""
    patch: dict[str, Any] = {}
    if keys.SCALE_DOWN_DISABLED not in node.annotations:
        named = {keys.SCALE_DOWN_DISABLED: "true", keys.SCALE_DOWN_DISABLED_BY_US: "true"}
        patch["metadata"] = {"annotations": named}
    if tainted and not any(_is_ours(one) for one in node_taints(node)):
        patch["spec"] = {"taints": [*node_taints(node), _TAINT]}
        patch.setdefault("metadata", {})["resourceVersion"] = node.resource_version
    return patch or None


def _freed(node: Object, *, forget: bool) -> dict[str, Any]:
    """The patch that takes back what `_held` did."""
    annotations: dict[str, None] = {}
    if keys.SCALE_DOWN_DISABLED_BY_US in node.annotations:
        annotations = {keys.SCALE_DOWN_DISABLED: None, keys.SCALE_DOWN_DISABLED_BY_US: None}
    if forget and keys.PRESERVE in node.annotations:
        annotations[keys.PRESERVE] = None
    patch: dict[str, Any] = {"metadata": {"uid": node.uid, "annotations": annotations}}
    kept = [one for one in node_taints(node) if not _is_ours(one)]
    if len(kept) != len(node_taints(node)):
        patch["spec"] = {"taints": kept}
        patch["metadata"]["resourceVersion"] = node.resource_version
    return patch


def _is_ours(taint: Mapping[str, Any]) -> bool:
    return (taint.get("key"), taint.get("effect")) == (_TAINT["key"], _TAINT["effect"])


async def _tell(
    shoot: TargetCluster, node: Object, status: str, reason: str, message: str, now: datetime
) -> None:
    at = spelled(now)
    condition = {
        "type": _CONDITION,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": at,
        "lastTransitionTime": at,
    }
    patch = {"status": {"conditions": [condition]}}
    await shoot.strategic_merge(NODES, "", node.name, patch, part="status")
