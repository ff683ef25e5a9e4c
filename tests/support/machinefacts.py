"""Machines and MachineSets as values, for tests of decisions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windowbox.models import machinekeys as keys
from windowbox.models.objects import Object
from workers.machines import deployments
from workers.machines.deployment.deploymentstate import State
from workers.machines.facts import MachineFacts
from workers.machines.sets import MachineSet

LABELS = {"name": "pool"}


def machine(name: str, phase: str = "Running", **fields: Any) -> MachineFacts:
    facts = {"uid": f"uid-{name}", "created": "2026-01-01T00:00:00Z", "labels": dict(LABELS), **fields}
    return MachineFacts(name=name, phase=phase, **facts)


def template(class_name: str = "small", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"labels": dict(LABELS)},
        "spec": {"class": {"kind": "MachineClass", "name": class_name}, **spec},
    }


def machine_set(
    name: str = "pool-a",
    replicas: int = 3,
    *,
    available: int | None = None,
    existing: int | None = None,
    class_name: str = "small",
    **fields: Any,
) -> MachineSet:
    """A set whose machines are all available by default."""
    metadata = {
        "name": name,
        "uid": f"uid-{name}",
        "generation": 1,
        "creationTimestamp": f"2026-01-01T00:00:0{len(name)}Z",
        "labels": dict(LABELS),
        **fields.pop("metadata", {}),
    }
    there = replicas if available is None else available
    status = {
        "observedGeneration": 1,
        "replicas": replicas if existing is None else existing,
        "fullyLabeledReplicas": there,
        "availableReplicas": there,
        "readyReplicas": there,
        **fields.pop("status", {}),
    }
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": dict(LABELS)},
        "template": template(class_name),
        **fields.pop("spec", {}),
    }
    assert not fields
    return MachineSet(Object({"metadata": metadata, "spec": spec, "status": status}))


def deployment(replicas: int = 3, surge: Any = 1, unavailable: Any = 0, **fields: Any) -> Object:
    rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
    spec = {
        "replicas": replicas,
        "revisionHistoryLimit": 0,
        "selector": {"matchLabels": dict(LABELS)},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
        "template": template("big"),
        **fields.pop("spec", {}),
    }
    metadata = {"name": "pool", "uid": "uid-pool", "generation": 1, **fields.pop("metadata", {})}
    return Object({"metadata": metadata, "spec": spec, "status": fields.pop("status", {})})


def state(of: Object, *sets: MachineSet, terminating: Sequence[str] = ()) -> State:
    """A deployment, its sets, and as many machines as each set says that it has.

    For each name in `terminating`, one more machine of that set is being deleted.
    """
    machines = {}
    for one in sets:
        living = [machine(f"{one.name}-{number}") for number in range(one.existing)]
        going = [machine(f"{one.name}-x{n}", deleting=True) for n in range(terminating.count(one.name))]
        machines[one.uid] = (*living, *going)
    return State(of, deployments.checked(of), tuple(sorted(sets, key=lambda one: one.age)), machines)


def sized(desired: int, largest: int) -> dict[str, Any]:
    """Metadata with the numbers of machines that a set was sized for."""
    return {"annotations": {keys.DESIRED_REPLICAS: str(desired), keys.MAX_REPLICAS: str(largest)}}
