"""Whether the machines that a Worker asks for are there: a pure function of the objects of its namespace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from windowbox.models.objects import Object
from workers.core import healthchecks
from workers.machines.facts import number
from workers.machines.worker.workergroups import Group
from workers.machines.worker.workerobserved import CANDIDATE, MachineSet, Observed


@dataclass(frozen=True)
class Pending:
    """Other controllers are still working."""

    text: str


@dataclass(frozen=True)
class Failed:
    """Machines have failed; a retry, or a person, has to repair them."""

    text: str


Verdict = Pending | Failed | None
"""None: all machines are there."""


@dataclass
class _Sums:
    """Of all wanted MachineDeployments."""

    awake: int = 0
    waiting: int = 0
    """Machines of old sets that wait for a person to choose their nodes for an update."""
    updating: int = 0
    """Machines of old sets that are being updated."""
    healthy: int = 0
    desired: int = 0
    updated: int = 0
    available: int = 0
    unavailable: int = 0
    preserved: int = 0


def verdict(
    groups: Iterable[Group], deployments: Mapping[str, Object], before: Observed, *, hibernated: bool
) -> Verdict:
    """`deployments` are as they are now; `before` is what the run observed at its begin."""
    wanted, sums = list(groups), _Sums()
    for group in wanted:
        deployment = deployments.get(group.name)
        if deployment is None:
            continue
        if failed := healthchecks.failed_machines([deployment]):
            return Failed(f"machine(s) failed: {_grouped(failed)}")
        status = deployment.status
        sums.awake += number(status.get("replicas"))
        if hibernated:
            continue
        sets = [one for one in before.sets if one.deployment == group.name]
        if pending := _missing_sets(group, deployment, sets, before):
            return pending
        sums.healthy += not healthchecks.unhealthy_machines(deployment)
        if group.manual:
            old = {one.name: one.replicas for one in sets if one.class_name != group.class_name}
            sums.waiting += sum(old.values())
            sums.updating += sum(
                one.set in old and one.update not in ("", CANDIDATE) for one in before.machines
            )
        sums.desired += number(deployment.spec.get("replicas"))
        sums.updated += number(status.get("updatedReplicas"))
        sums.available += number(status.get("availableReplicas"))
        sums.unavailable += number(status.get("unavailableReplicas"))
        sums.preserved += number(status.get("preservedFailedReplicas"))
    if not hibernated:
        return _of_sums(sums, len(wanted))
    return (
        Pending(f"Waiting until all machines have been hibernated ({sums.awake} still awake)...")
        if sums.awake
        else None
    )


def _missing_sets(
    group: Group, deployment: Object, sets: list[MachineSet], before: Observed
) -> Pending | None:
    waiting = "waiting for the machine-controller-manager to create the"
    where = f"for the machine deployment ({deployment.namespace}/{deployment.name})"
    existed = group.name in before.deployments
    # A new class rolls the machines: besides the old set there has to be a second one.
    if existed and group.class_name not in before.classes and len(sets) < 2:
        return Pending(f"{waiting} machine sets {where}")
    if not any(one.class_name == group.class_name for one in sets):
        return Pending(f"{waiting} updated machine set {where}")
    return None


def _of_sums(sums: _Sums, wanted: int) -> Verdict:
    updated = sums.updated + sums.waiting
    # Preserved failed machines stay unavailable on purpose.
    missing = sums.unavailable and not (sums.preserved > 0 and sums.unavailable <= sums.preserved)
    if updated == sums.awake and sums.healthy == wanted and not sums.updating and not missing:
        return None
    if sums.updating:
        return Pending(f"Waiting until {sums.updating} old machines are updated...")
    if sums.healthy == wanted and not missing and (old := sums.awake - updated) > 0:
        return Pending(
            f"Waiting until all old machines are drained and terminated. Waiting for {old} machine(s)..."
        )
    return Pending(
        f"Waiting until machines are available ({sums.available}/{sums.desired} desired machine(s) "
        f"available, {updated}/{sums.desired} machine(s) updated, {sums.unavailable} "
        f"machine(s) pending, {sums.preserved} preserved failed machine(s), "
        f"{sums.healthy}/{wanted} machinedeployments available)..."
    )


def _grouped(failed: Iterable[tuple[str, str]]) -> str:
    """The failed machines, grouped by the reason of their failure."""
    machines: dict[str, list[str]] = defaultdict(list)
    for name, reason in failed:
        machines[reason].append(f'"{name}"')
    texts = [f"{', '.join(names)}: {reason}" for reason, names in machines.items()]
    if len(texts) == 1:
        return f"1 error occurred: {texts[0]}"
    return f"{len(texts)} errors occurred: [{', '.join(texts)}]"
