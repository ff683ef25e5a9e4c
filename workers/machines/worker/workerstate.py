"""The state of a Worker: the machine objects in its namespace, and the status that follows from them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Self

from bus import streams, subjects
from bus.messages import Announcement
from bus.transport import consumers
from bus.transport.connection import Bus
from clouds.frame.pools import Group
from windowbox.models import machinekeys as keys
from windowbox.models.extensions import TIMESTAMP, instant, spelled
from windowbox.models.objects import Object, mapping, mappings
from windowbox.models.refs import (
    MACHINE_CLASSES,
    MACHINE_DEPLOYMENTS,
    MACHINE_SETS,
    MACHINES,
    ObjectRef,
    Resource,
)
from workers.core import healthchecks
from workers.core.lifecycle.actuators import Run, Status
from workers.machines.facts import number

CANDIDATE = "CandidateForUpdate"


@dataclass(frozen=True)
class MachineSet:
    name: str
    deployment: str
    """The MachineDeployment that it belongs to."""
    class_name: str
    replicas: int
    """How many machines it has."""
    deleting: bool = False

    @classmethod
    def of(cls, found: Object) -> Self:
        return cls(
            name=found.name,
            deployment=_owner(found, MACHINE_DEPLOYMENTS),
            class_name=class_name(found),
            replicas=number(found.status.get("replicas")),
            deleting=found.deleting,
        )


@dataclass(frozen=True)
class Machine:
    name: str
    set: str
    """The MachineSet that it belongs to."""
    update: str
    """The step of its in-place update; empty without one."""
    forced: bool
    """Whether its deletion skips the drain of its node."""
    deleting: bool = False

    @classmethod
    def of(cls, found: Object) -> Self:
        conditions = mappings(found.status.get("conditions"))
        reasons = (str(one.get("reason") or "") for one in conditions if one.get("type") == "InPlaceUpdate")
        return cls(
            name=found.name,
            set=_owner(found, MACHINE_SETS),
            update=next(reasons, ""),
            forced=found.labels.get(keys.FORCE_DELETION) == "True",
            deleting=found.deleting,
        )


@dataclass(frozen=True)
class Observed:
    """The machine objects of one namespace."""

    classes: frozenset[str]
    deployments: Mapping[str, Object]
    """By their names."""
    sets: tuple[MachineSet, ...]
    machines: tuple[Machine, ...]


async def observe(bus: Bus, run: Run) -> Observed:
    """Read the last versions in the stream, for the namespace of a Worker.

    A view could be a moment behind the change that started the run, and no further change might follow.
    """
    recorder, cluster, namespace = run.recorder, run.ref.cluster, run.ref.namespace

    async def snapshot() -> dict[str, Any]:
        kinds = (MACHINE_CLASSES, MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES)
        found: dict[str, list[Object]] = {kind.id: [] for kind in kinds}
        wanted = [subjects.seen_namespace(cluster, kind.id, namespace) for kind in kinds]
        async for stored in consumers.snapshot(bus, streams.OBJECTS, wanted):
            seen = Announcement(stored)
            if seen.gone:
                continue
            ref = subjects.ref(subjects.without("object", stored.subject))
            # The bus omits the content of an object that is too large, and keeps its name.
            bare = Object({"metadata": {"name": ref.name, "namespace": ref.namespace}})
            found[ref.kind].append(bare if seen.omitted else seen.object())
        return {
            "classes": [one.name for one in found[MACHINE_CLASSES.id]],
            "deployments": [one.name for one in found[MACHINE_DEPLOYMENTS.id]],
            "sets": [asdict(MachineSet.of(one)) for one in found[MACHINE_SETS.id]],
            "machines": [asdict(Machine.of(one)) for one in found[MACHINES.id]],
        }

    answer = await recorder.call("machines", {"namespace": namespace}, snapshot)
    refs = [ObjectRef(cluster, MACHINE_DEPLOYMENTS.id, namespace, name) for name in answer["deployments"]]
    # The recorder notes a read as a place in the stream, which keeps recordings small.
    deployments = {ref.name: await recorder.read(ref) for ref in refs}
    return Observed(
        classes=frozenset(answer["classes"]),
        deployments={name: found for name, found in deployments.items() if found},
        sets=tuple(MachineSet(**one) for one in answer["sets"]),
        machines=tuple(Machine(**one) for one in answer["machines"]),
    )


def class_name(found: Object) -> str:
    """The MachineClass in the template of a MachineDeployment or MachineSet."""
    spec = mapping(mapping(found.spec.get("template")).get("spec"))
    return str(mapping(spec.get("class")).get("name") or "")


def _owner(found: Object, resource: Resource) -> str:
    """The name of the object's owner of this kind."""
    owners = found.metadata.get("ownerReferences")
    if not owners:  # a restored MachineSet has only its label until its MachineDeployment adopts it
        return str(found.labels.get(keys.DEPLOYMENT, "")) if resource == MACHINE_DEPLOYMENTS else ""
    ours = (
        str(one.get("name", ""))
        for one in owners
        if isinstance(one, Mapping) and one.get("kind") == resource.kind
    )
    return next(ours, "")


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


_PRESERVED = "preservedFailedReplicas"
_COUNTED = ("replicas", "updatedReplicas", "availableReplicas", "unavailableReplicas", _PRESERVED)
"""Numbers in the statuses of MachineDeployments."""


def verdict(
    groups: Iterable[Group], deployments: Mapping[str, Object], before: Observed, *, hibernated: bool
) -> Verdict:
    """`deployments` are as they are now; `before` is what the run observed at its begin."""
    wanted, sums = list(groups), Counter[str]()
    for group in wanted:
        deployment = deployments.get(group.name)
        if deployment is None:
            continue
        if failed := healthchecks.failed_machines([deployment]):
            machines: dict[str, list[str]] = defaultdict(list)
            for name, reason in failed:
                machines[reason].append(f'"{name}"')
            texts = ", ".join(f"{', '.join(names)}: {reason}" for reason, names in machines.items())
            several = f"{len(machines)} errors occurred: [{texts}]"
            text = several if len(machines) > 1 else f"1 error occurred: {texts}"
            return Failed(f"machine(s) failed: {text}")
        sums.update({name: number(deployment.status.get(name)) for name in _COUNTED})
        if hibernated:
            continue
        sets = [one for one in before.sets if one.deployment == group.name]
        waiting = "waiting for the machine-controller-manager to create the"
        where = f"for the machine deployment ({deployment.namespace}/{deployment.name})"
        # A new class rolls the machines: besides the old set there has to be a second one.
        rolls = group.name in before.deployments and group.class_name not in before.classes
        if rolls and len(sets) < 2:
            return Pending(f"{waiting} machine sets {where}")
        if not any(one.class_name == group.class_name for one in sets):
            return Pending(f"{waiting} updated machine set {where}")
        sums["desired"] += number(deployment.spec.get("replicas"))
        sums["healthy"] += not healthchecks.unhealthy_machines(deployment)
        if group.manual:
            # Machines of old sets wait for a person to choose their nodes, or are being updated.
            old = {one.name: one.replicas for one in sets if one.class_name != group.class_name}
            chosen = [one for one in before.machines if one.set in old and one.update not in ("", CANDIDATE)]
            sums.update({"waiting": sum(old.values()), "updating": len(chosen)})
    if not hibernated:
        return _of_sums(sums, len(wanted))
    asleep = f"Waiting until all machines have been hibernated ({sums['replicas']} still awake)..."
    return Pending(asleep) if sums["replicas"] else None


def _of_sums(sums: Counter[str], wanted: int) -> Verdict:
    updated, missing = sums["updatedReplicas"] + sums["waiting"], sums["unavailableReplicas"]
    if sums[_PRESERVED] and missing <= sums[_PRESERVED]:
        missing = 0  # preserved failed machines stay unavailable on purpose
    if sums["updating"]:
        return Pending(f"Waiting until {sums['updating']} old machines are updated...")
    if sums["healthy"] == wanted and not missing:
        old = sums["replicas"] - updated
        if old == 0:
            return None
        if old > 0:
            drained = "Waiting until all old machines are drained and terminated."
            return Pending(f"{drained} Waiting for {old} machine(s)...")
    desired = f"/{sums['desired']}"
    return Pending(
        f"Waiting until machines are available ({sums['availableReplicas']}{desired} desired machine(s) "
        f"available, {updated}{desired} machine(s) updated, {sums['unavailableReplicas']} "
        f"machine(s) pending, {sums[_PRESERVED]} preserved failed machine(s), "
        f"{sums['healthy']}/{wanted} machinedeployments available)..."
    )


_SECOND = timedelta(seconds=1)


def secrets_are_written(worker: Object) -> bool:
    """Whether an earlier run for the same request has written all Secrets.

    It has, if the client knows the MachineDeployments. Without a time in the request, a failure may have
    answered an earlier request.
    """
    asked = instant(worker.annotations.get(TIMESTAMP))
    failed = worker.last_operation.get("state") == "Error"
    return _is_listed(worker) and not (asked is None and failed)


def machine_deployments(worker: Object, groups: Sequence[Group], now: datetime) -> Status:
    """The list of MachineDeployments, reported before they have machines; empty if it is reported.

    gardenlet starts the autoscaler with it, as soon as its time is later than the request and than the time
    that gardenlet knows.
    """
    listed = [
        {"name": group.name, "minimum": group.minimum, "maximum": group.maximum}
        | ({} if group.pool.priority is None else {"priority": group.pool.priority})
        for group in groups
    ]
    if not groups or (_is_listed(worker) and worker.status.get("machineDeployments") == listed):
        return {}
    known = instant(worker.status.get("machineDeploymentsLastUpdateTime"))
    asked = instant(worker.annotations.get(TIMESTAMP))
    times = [now, *([known + _SECOND] if known else [])]
    if asked and asked <= now + timedelta(minutes=5):  # a clock that is far ahead is not followed
        # The status has whole seconds: rounded down, its time would be before the request.
        times.append(asked if asked.microsecond == 0 else asked.replace(microsecond=0) + _SECOND)
    return {"machineDeployments": listed, "machineDeploymentsLastUpdateTime": spelled(max(times))}


def in_place_hashes(worker: Object, groups: Iterable[Group], found: Mapping[str, Object]) -> Status:
    """A merge patch with the hash of each pool whose machines have all been updated in place."""
    before = mapping(mapping(worker.status.get("inPlaceUpdates")).get("workerPoolToHashMap"))
    pools: dict[str, list[Group]] = {}
    for group in groups:
        if group.in_place:
            pools.setdefault(group.pool.name, []).append(group)
    after = {}
    for name, members in pools.items():
        # If a person chooses the nodes, a Worker may be ready before the pool is updated.
        chosen = [found.get(group.name) for group in members if group.manual]
        updated = all(
            one and number(one.status.get("updatedReplicas")) >= number(one.status.get("replicas"))
            for one in chosen
        )
        if hash_ := members[0].in_place_hash if updated else before.get(name):
            after[name] = hash_
    if after == before:
        return {}
    gone = {name: None for name in before if name not in after}
    return {"inPlaceUpdates": {"workerPoolToHashMap": {**gone, **after}} if after else None}


def _is_listed(worker: Object) -> bool:
    """Whether the status lists the MachineDeployments of the last request."""
    listed = instant(worker.status.get("machineDeploymentsLastUpdateTime"))
    asked = instant(worker.annotations.get(TIMESTAMP))
    if listed is None or worker.last_operation.get("state") == "Succeeded":
        return False
    return asked is None or asked <= listed
