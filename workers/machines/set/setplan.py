"""The plan of a MachineSet: the Machines it owns, creates and deletes, its freeze, and its status. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from windowbox.models import machinekeys as keys
from windowbox.models.extensions import instant, spelled
from windowbox.models.machines import Phase
from windowbox.models.objects import Object, mapping, mappings
from windowbox.models.refs import MACHINES
from workers.core.owned.manifests import manifest
from workers.machines import deployments, facts, names, preservation, templates
from workers.machines.facts import MachineFacts
from workers.machines.preservation import AUTO
from workers.machines.sets import MachineSet, integer

BURST = 100
"""The most machines that one run creates or deletes."""
_PRIORITY = 3
_RANKS = {
    Phase.TERMINATING: 0,
    Phase.FAILED: 1,
    Phase.CRASH_LOOP_BACK_OFF: 2,
    Phase.UNKNOWN: 3,
    Phase.IN_PLACE_UPDATE_FAILED: 3,
    Phase.NEW: 4,
    Phase.PENDING: 4,
    Phase.AVAILABLE: 5,
    # Gardener's own controller has no rank for these and deletes them first: a set that shrinks during an
    # in-place update loses just the machines that are updated.
    Phase.IN_PLACE_UPDATING: 6,
    Phase.IN_PLACE_UPDATE_SUCCESSFUL: 7,
    Phase.RUNNING: 7,
}
_LATEST = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Claims:
    """The Machines of a MachineSet, and those to adopt and to release."""

    owned: list[MachineFacts]
    adopted: list[MachineFacts]
    released: list[MachineFacts]


@dataclass(frozen=True)
class Plan:
    """The Machines to create and to delete."""

    create: int = 0
    delete: tuple[MachineFacts, ...] = ()
    held: str = ""
    """Why missing machines are not created."""

    @property
    def acts(self) -> bool:
        return bool(self.create or self.delete)


@dataclass(frozen=True)
class Limits:
    """The numbers of machines at which a set is frozen, and unfrozen."""

    upper: int
    lower: int


def invalid(owner: MachineSet, most: int) -> str:
    """Why a set cannot be served; empty if it can."""
    spec = mapping(owner.template.get("spec"))
    if not facts.selects(owner.object.spec.get("selector"), _template_labels(owner)):
        return "spec.selector does not match spec.template.metadata.labels: correct one of them"
    if not mapping(spec.get("class")).get("name"):
        return "spec.template.spec.class.name is missing: name a MachineClass"
    return deployments.too_many(owner.wanted, most)


def claims(owner: Object, machines: Iterable[MachineFacts]) -> Claims:
    """The claims by owner reference and selector. A set that is being deleted adopts nothing."""
    owned: list[MachineFacts] = []
    adopted: list[MachineFacts] = []
    released: list[MachineFacts] = []
    for one in machines:
        matches = facts.selects(owner.spec.get("selector"), one.labels)
        if one.owner == owner.uid:
            # A set that is being deleted deletes all its machines, even if its selector has changed.
            (owned if matches or owner.deleting else released).append(one)
        elif not one.owner and matches and not one.deleting and not owner.deleting:
            adopted.append(one)
    return Claims(owned, adopted, released)


def plan(
    owner: MachineSet, machines: Sequence[MachineFacts], nodes: dict[str, str | None], now: datetime
) -> Plan:
    """The plan for the machines of a set. `nodes` holds preservation annotations, by names of nodes."""
    if owner.object.deleting:
        return Plan(delete=tuple(one for one in machines if not one.deleting))
    # A machine that is being deleted is replaced at once.
    living = [one for one in machines if not one.terminating]
    if len(living) < owner.wanted:
        held = "its machines are updated in place" if keys.SCALE_UP_DISABLED in owner.labels else ""
        held = "it is frozen, because it has too many machines" if owner.frozen else held
        return Plan(create=0 if held else min(owner.wanted - len(living), BURST), held=held)
    # A machine that an in-place update hands over still counts for the old set, or not yet for the new one.
    own = [one for one in living if one.labels.get(keys.UPDATE_RESULT) != keys.SUCCESSFUL]
    going = first_to_go(own, now)[: max(0, len(own) - owner.wanted)]
    # The autoscaler marks machines before it changes the replicas: later marks belong to its next change.
    if scaled := instant(owner.annotations.get(keys.SCALER_TIME, "")):
        chosen = [one for one in own if one.annotations.get(keys.PRIORITY) == "1"]
        going += [one for one in chosen if _marked(one) <= scaled]
    going += [one for one in own if one.failed and not preservation.is_kept(one, nodes.get(one.node), now)]
    first = list({one.uid: one for one in going}.values())[:BURST]
    return Plan(delete=tuple(one for one in first if not one.deleting))


def first_to_go(machines: Iterable[MachineFacts], now: datetime) -> list[MachineFacts]:
    """The machines in the order in which they are deleted."""

    def order(machine: MachineFacts) -> tuple[object, ...]:
        expiry = machine.expiry
        preserved = expiry is not None and expiry > now
        priority = integer(machine.annotations.get(keys.PRIORITY, _PRIORITY))
        phase = Phase(machine.phase) if machine.phase in set(Phase) else Phase.UNKNOWN
        return (
            preserved,
            preserved and machine.annotations.get(keys.PRESERVE) != AUTO,
            expiry if preserved and expiry else _LATEST,
            _PRIORITY if priority is None else priority,
            _marked(machine),
            _RANKS.get(phase, 3),
            machine.created,
            machine.name,
        )

    return sorted(machines, key=order)


def fresh_names(owner: MachineSet, count: int, first: int, taken: Collection[str]) -> tuple[list[str], int]:
    """Names for so many machines, and the number to continue with. A repeated run gets the same names."""
    # The number continues over all runs: the name of a deleted machine is not used again.
    found: list[str] = []
    number = first
    while len(found) < count:
        name = names.machine_name(owner.name, owner.uid, number)
        number += 1
        if name not in taken:
            found.append(name)
    return found, number


def machine(owner: MachineSet, name: str) -> dict[str, Any]:
    """The manifest of a Machine, with the fields that its driver would write next."""
    template = templates.pruned(owner.template)
    given, pod = template.get("metadata", {}), names.pod(name)
    labels, spec = (
        {**given.get("labels", {}), keys.NODE: pod},
        {**template.get("spec", {}), "providerID": pod},
    )
    owners = [facts.owner_reference(owner.object, "MachineSet")]
    made = manifest(MACHINES, name, labels=labels, owners=owners, spec=spec)
    made["metadata"] |= {
        "finalizers": list(dict.fromkeys([*given.get("finalizers", []), keys.FINALIZER])),
        "annotations": {keys.PRIORITY: keys.USUAL_PRIORITY, **given.get("annotations", {})},
    }
    return made


def freeze_limits(owner: MachineSet, wanted: int | None, surge: int, up: int, down: int) -> Limits:
    """The limits of a set; `wanted` are the replicas of its MachineDeployment, None without one."""
    upper = (2 * owner.wanted if wanted is None else wanted + surge) + up
    return Limits(upper, upper - down)


def fully_labeled(owner: MachineSet, machines: Iterable[MachineFacts]) -> int:
    """How many machines bear the labels of the set's template."""
    labels = _template_labels(owner).items()
    return sum(labels <= dict(one.labels).items() for one in machines)


def is_frozen(owner: MachineSet, count: int, limit: Limits) -> bool:
    """Whether the set has to be frozen now."""
    if keys.UNFREEZE in owner.annotations:
        return False
    return count > limit.lower if owner.frozen else count >= limit.upper


def _marked(machine: MachineFacts) -> datetime:
    return instant(machine.annotations.get(keys.MARKED_FOR_DELETION)) or _LATEST


def _template_labels(owner: MachineSet) -> dict[str, str]:
    return facts.strings(mapping(mapping(owner.template.get("metadata")).get("labels")))


FAILURE = "ReplicaFailure"
FROZEN = "Frozen"
_MOST_FAILED = 100
"""Failed machines that the status lists: etcd limits the size of an object."""
_LONGEST = 500
"""Characters of the description of each."""


@dataclass(frozen=True)
class Condition:
    """A condition that is True; a condition that no longer holds is left out."""

    type: str
    reason: str
    message: str


def frozen(owner: MachineSet, count: int, limit: Limits) -> Condition:
    """The condition of a set that is frozen, because it has so many machines."""
    message = (
        f"The number of machines backing MachineSet: {owner.name} is {count} >= {limit.upper} "
        "which is the Max-ScaleUp-Limit"
    )
    return Condition(FROZEN, "OverShootingReplicaCount", message)


def status(
    owner: MachineSet,
    machines: Sequence[MachineFacts],
    conditions: Sequence[Condition],
    shown: Mapping[str, Any],
    now: datetime,
) -> dict[str, Any]:
    """The whole status but its last operation. `shown` is the status so far: conditions keep their times."""
    preserved = {one.uid for one in machines if one.failed and one.preserved_until}
    failed = [one for one in machines if one.failure is not None and one.uid not in preserved]
    listed = []
    for one in sorted(failed, key=lambda one: one.name)[:_MOST_FAILED]:
        last = dict(one.failure or {})
        if len(text := str(last.get("description", ""))) > _LONGEST:
            last["description"] = f"{text[:_LONGEST]}…"
        provider = {"providerID": one.provider_id} if one.provider_id else {}
        listed.append({"name": one.name, "ownerRef": owner.name, "lastOperation": last, **provider})
    # A condition keeps its time and message while neither its status nor its reason changes.
    known = {
        (one.get("type"), one.get("reason")): dict(one)
        for one in mappings(shown.get("machineSetCondition"))
        if one.get("status") == "True"
    }
    new = {"status": "True", "lastTransitionTime": spelled(now)}
    return {
        "observedGeneration": owner.object.generation,
        "replicas": len(machines),
        "fullyLabeledReplicas": fully_labeled(owner, machines),
        "readyReplicas": sum(one.ready for one in machines),
        "availableReplicas": sum(one.available for one in machines),
        "preservedFailedReplicas": len(preserved),
        "autoPreserveFailedMachineCount": sum(
            one.annotations.get(keys.PRESERVE) == preservation.AUTO for one in machines
        ),
        "failedMachines": listed or None,
        "machineSetCondition": [
            known.get((one.type, one.reason)) or {**dataclasses.asdict(one), **new} for one in conditions
        ]
        or None,
    }
