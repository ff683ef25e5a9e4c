"""The Machines that a MachineSet makes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from windowbox.models import machinekeys as keys
from windowbox.models.objects import mapping
from windowbox.models.refs import MACHINES
from workers.machines import facts, names, templates
from workers.machines.sets import MachineSet


def machine(owner: MachineSet, name: str) -> dict[str, Any]:
    """A Machine by the template of its set, with what its driver would have to write next."""
    template = templates.pruned(owner.template)
    given, pod = template.get("metadata", {}), names.pod(name)
    return {
        "apiVersion": f"{MACHINES.group}/{MACHINES.version}",
        "kind": MACHINES.kind,
        "metadata": {
            "name": name,
            "ownerReferences": [facts.owner_reference(owner.object, "MachineSet")],
            "finalizers": list(dict.fromkeys([*given.get("finalizers", []), keys.FINALIZER])),
            "labels": {**given.get("labels", {}), keys.NODE: pod},
            "annotations": {keys.PRIORITY: keys.USUAL_PRIORITY, **given.get("annotations", {})},
        },
        "spec": {**template.get("spec", {}), "providerID": pod},
    }


def fresh_names(owner: MachineSet, count: int, first: int, taken: Collection[str]) -> tuple[list[str], int]:
    """Names for so many machines, and the number to go on with. A run that is repeated finds the same."""
    found: list[str] = []
    number = first
    while len(found) < count:
        name = names.machine_name(owner.name, owner.uid, number)
        number += 1
        if name not in taken:
            found.append(name)
    return found, number


def valid(owner: MachineSet) -> str:
    """Why a set cannot be served; empty if it can."""
    spec = mapping(owner.template.get("spec"))
    labels = facts.strings(mapping(mapping(owner.template.get("metadata")).get("labels")))
    if not facts.selects(owner.object.spec.get("selector"), labels):
        return "spec.selector does not match spec.template.metadata.labels: correct one of them"
    if not mapping(spec.get("class")).get("name"):
        return "spec.template.spec.class.name is missing: name a MachineClass"
    return ""
