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
from workers.core.lifecycle.actuators import Run
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
