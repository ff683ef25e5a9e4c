"""The observed machines of a Worker: MachineDeployments, MachineSets and Machines of its namespace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from bus import streams, subjects
from bus.messages import Announcement
from bus.transport import consumers
from bus.transport.connection import Bus
from windowbox.models import machinekeys as keys
from windowbox.models.objects import Object, mapping, mappings
from windowbox.models.refs import (
    MACHINE_CLASSES,
    MACHINE_DEPLOYMENTS,
    MACHINE_SETS,
    MACHINES,
    ObjectRef,
    Resource,
)
from workers.core.recorder import Recorder

UPDATE = "InPlaceUpdate"
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
            replicas=count(found.status.get("replicas")),
            deleting=found.deleting,
        )


@dataclass(frozen=True)
class Machine:
    name: str
    set: str
    """The MachineSet that it belongs to."""
    update: str
    """At what point of an update in place it is; empty if at none."""
    forced: bool
    """Whether its deletion does not wait for its node to be emptied."""
    deleting: bool = False

    @classmethod
    def of(cls, found: Object) -> Self:
        reasons = (
            str(one.get("reason") or "")
            for one in mappings(found.status.get("conditions"))
            if one.get("type") == UPDATE
        )
        return cls(
            name=found.name,
            set=_owner(found, MACHINE_SETS),
            update=next(reasons, ""),
            forced=found.labels.get(keys.FORCE_DELETION) == "True",
            deleting=found.deleting,
        )


@dataclass(frozen=True)
class Observed:
    """What there is in one namespace."""

    classes: frozenset[str]
    deployments: Mapping[str, Object]
    """By their names."""
    sets: tuple[MachineSet, ...]
    machines: tuple[Machine, ...]


async def observe(bus: Bus, recorder: Recorder, cluster: str, namespace: str) -> Observed:
    """What there is, as the bus knows it now: a view could be a moment behind the change that started a run,
    and there might never be another."""

    async def act() -> dict[str, Any]:
        found = await _found(bus, cluster, namespace)
        return {
            "classes": [one.name for one in found[MACHINE_CLASSES]],
            "deployments": [one.name for one in found[MACHINE_DEPLOYMENTS]],
            "sets": [asdict(MachineSet.of(one)) for one in found[MACHINE_SETS]],
            "machines": [asdict(Machine.of(one)) for one in found[MACHINES]],
        }

    answer = await recorder.call("machines", {"namespace": namespace}, act)
    refs = [ObjectRef(cluster, MACHINE_DEPLOYMENTS.id, namespace, name) for name in answer["deployments"]]
    deployments = {ref.name: await recorder.read(ref) for ref in refs}
    return Observed(
        classes=frozenset(answer["classes"]),
        deployments={name: found for name, found in deployments.items() if found},
        sets=tuple(MachineSet(**one) for one in answer["sets"]),
        machines=tuple(Machine(**one) for one in answer["machines"]),
    )


async def _found(bus: Bus, cluster: str, namespace: str) -> dict[Resource, list[Object]]:
    kinds = (MACHINE_CLASSES, MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES)
    subjects_of = {kind.id: subjects.seen_namespace(cluster, kind.id, namespace) for kind in kinds}
    found: dict[Resource, list[Object]] = {kind: [] for kind in kinds}
    by_id = {kind.id: kind for kind in kinds}
    async for stored in consumers.snapshot(bus, streams.OBJECTS, list(subjects_of.values())):
        seen = Announcement(stored)
        if seen.gone:
            continue
        ref = subjects.ref(subjects.without("object", stored.subject))
        # Of what is too large for the bus, at least the name is known.
        bare = Object({"metadata": {"name": ref.name, "namespace": ref.namespace}})
        found[by_id[ref.kind]].append(bare if seen.omitted else seen.object())
    return found


def class_name(found: Object) -> str:
    """The MachineClass in the template of a MachineDeployment or MachineSet."""
    spec = mapping(mapping(found.spec.get("template")).get("spec"))
    return str(mapping(spec.get("class")).get("name") or "")


def count(value: object) -> int:
    """A number in a status; 0 where there is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _owner(found: Object, resource: Resource) -> str:
    """The name of the object's owner of a kind. Restored objects have no owner yet, but a label."""
    owners = found.metadata.get("ownerReferences")
    if not owners:
        return str(found.labels.get(keys.DEPLOYMENT, "")) if resource == MACHINE_DEPLOYMENTS else ""
    ours = (
        str(one.get("name", ""))
        for one in owners
        if isinstance(one, Mapping) and one.get("kind") == resource.kind
    )
    return next(ours, "")
