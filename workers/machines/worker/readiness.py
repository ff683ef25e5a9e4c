"""Whether the machines that a Worker asks for are there: a pure function of the objects of its namespace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from windowbox.models.objects import Object
from workers.core.health import checks
from workers.machines.worker.deployments import replicas_of
from workers.machines.worker.observed import CANDIDATE, Machine, MachineSet, Observed, count
from workers.machines.worker.wanted import Group


@dataclass(frozen=True)
class Pending:
    """Others are at it."""

    text: str


@dataclass(frozen=True)
class Failed:
    """Something has to be looked at by a person, or will be tried again."""

    text: str


Verdict = Pending | Failed | None
"""None: all machines are there."""


@dataclass
class _Sums:
    """Of all MachineDeployments that are wanted."""

    awake: int = 0
    extra: int = 0
    """Machines of old sets that wait for a person to choose their nodes for an update."""
    blocked: int = 0
    """Machines of old sets that are being updated."""
    healthy: int = 0
    desired: int = 0
    updated: int = 0
    available: int = 0
    unavailable: int = 0
    preserved: int = 0


def verdict(
    groups: Iterable[Group],
    deployments: Mapping[str, Object],
    before: Observed,
    *,
    hibernated: bool,
) -> Verdict:
    """`deployments` are those that are there now; `before` is what there was when the run began."""
    wanted, sums = list(groups), _Sums()
    for group in wanted:
        deployment = deployments.get(group.name)
        if deployment is None:
            continue
        if failed := checks.failed_machines([deployment]):
            return Failed(f"machine(s) failed: {_grouped(failed)}")
        sums.awake += count(deployment.status.get("replicas"))
        if hibernated:
            continue
        sets = [one for one in before.sets if one.deployment == group.name]
        if pending := _sets_missing(group, deployment, sets, before):
            return pending
        sums.healthy += not checks.unhealthy_machines(deployment)
        if group.manual:
            old = [one for one in sets if one.class_name != group.class_name]
            sums.extra += sum(one.replicas for one in old)
            sums.blocked += len(_updating(old, before.machines))
        _add(sums, deployment)
    return _hibernation(sums) if hibernated else _summary(sums, len(wanted))


def _sets_missing(
    group: Group, deployment: Object, sets: list[MachineSet], before: Observed
) -> Pending | None:
    waiting = "waiting for the machine-controller-manager to create the"
    where = f"for the machine deployment ({deployment.namespace}/{deployment.name})"
    existed = group.name in before.deployments
    if existed and group.class_name not in before.classes and len(sets) < 2:
        return Pending(f"{waiting} machine sets {where}")
    if not any(one.class_name == group.class_name for one in sets):
        return Pending(f"{waiting} updated machine set {where}")
    return None


def _updating(old: list[MachineSet], machines: Iterable[Machine]) -> list[Machine]:
    names = {one.name for one in old}
    return [one for one in machines if one.set in names and one.update not in ("", CANDIDATE)]


def _add(sums: _Sums, deployment: Object) -> None:
    status = deployment.status
    sums.desired += replicas_of(deployment)
    sums.updated += count(status.get("updatedReplicas"))
    sums.available += count(status.get("availableReplicas"))
    sums.unavailable += count(status.get("unavailableReplicas"))
    sums.preserved += count(status.get("preservedFailedReplicas"))


def _hibernation(sums: _Sums) -> Verdict:
    if not sums.awake:
        return None
    return Pending(f"Waiting until all machines have been hibernated ({sums.awake} still awake)...")


def _summary(sums: _Sums, wanted: int) -> Verdict:
    all_updated = sums.updated + sums.extra == sums.awake
    missing = sums.unavailable and not (sums.preserved > 0 and sums.unavailable <= sums.preserved)
    if all_updated and sums.healthy == wanted and not sums.blocked and not missing:
        return None
    if sums.blocked:
        return Pending(f"Waiting until {sums.blocked} old machines are updated...")
    if sums.healthy == wanted and not missing and (old := sums.awake - sums.updated - sums.extra) > 0:
        return Pending(
            f"Waiting until all old machines are drained and terminated. Waiting for {old} machine(s)..."
        )
    return Pending(
        f"Waiting until machines are available ({sums.available}/{sums.desired} desired machine(s) "
        f"available, {sums.updated + sums.extra}/{sums.desired} machine(s) updated, {sums.unavailable} "
        f"machine(s) pending, {sums.preserved} preserved failed machine(s), "
        f"{sums.healthy}/{wanted} machinedeployments available)..."
    )


def _grouped(failed: Iterable[tuple[str, str]]) -> str:
    """Machines that have failed for the same reason, named together."""
    machines: dict[str, list[str]] = defaultdict(list)
    for name, reason in failed:
        machines[reason].append(f'"{name}"')
    texts = [f"{', '.join(names)}: {reason}" for reason, names in machines.items()]
    if len(texts) == 1:
        return f"1 error occurred: {texts[0]}"
    return f"{len(texts)} errors occurred: [{', '.join(texts)}]"
