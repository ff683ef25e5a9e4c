"""The node of a Machine: its conditions, and the labels, annotations, taints and capacity for it. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from windowbox.models import machinekeys
from windowbox.models.extensions import instant, spelled
from windowbox.models.objects import Object, mapping, mappings, merge
from workers.machines.facts import node_taints
from workers.machines.machine.machinespecs import QUANTITY

READY = "Ready"
IN_PLACE = "InPlaceUpdate"
PRESERVED = "Preserved"
_OURS = (READY, IN_PLACE, PRESERVED)
_TEXTS = ("type", "status", "reason", "message")
_TIMES = ("lastHeartbeatTime", "lastTransitionTime")
_MOST_CONDITIONS = 64
_LONGEST, _SHORT = 1000, 100
"""Characters of a text of a condition; and of a message where all texts together are too long."""
_MOST_BYTES = 6000
"""Of the conditions that go into a Machine's status: it is kept on the bus, and Machines are many."""
_KINDS = ("labels", "annotations")

Condition = Mapping[str, Any]
Patch = dict[str, Any]


def conditions(node: Object) -> list[Condition]:
    """The conditions, limited to text and times that the API accepts in a Machine's status."""

    # The node may be a hostile server's: a Machine with an invalid status could not be written any more.
    def fits(name: str, value: Any) -> bool:
        return instant(value) is not None if name in _TIMES else name in _TEXTS and isinstance(value, str)

    return [
        {name: value[:_LONGEST] for name, value in one.items() if fits(name, value)}
        for one in mappings(node.status.get("conditions"))[:_MOST_CONDITIONS]
        if one.get("type") and one.get("status")
    ]


def bounded(found: Sequence[Condition]) -> list[dict[str, Any]]:
    """The conditions that a Machine's status shows: with short messages if they are large, or not all.

    Those that windowbox reads stay.
    """
    conditions = [dict(one) for one in found]
    if _size(conditions) > _MOST_BYTES:
        conditions = [
            {**one, **({"message": one["message"][:_SHORT]} if "message" in one else {})}
            for one in conditions
        ]
    kept, left = set[int](), _MOST_BYTES
    for number, one in sorted(enumerate(conditions), key=lambda each: each[1].get("type") not in _OURS):
        left -= _size(one)
        if left >= 0:
            kept.add(number)
    return [one for number, one in enumerate(conditions) if number in kept]


def _size(conditions: Any) -> int:
    return len(json.dumps(conditions))


def condition(node: Object, type: str) -> Condition | None:
    return next((one for one in conditions(node) if one["type"] == type), None)


def new_condition(type: str, status: str, reason: str, message: str, now: datetime) -> Patch:
    """A patch of a node's status that sets one condition."""
    at = spelled(now)
    said = {"type": type, "status": status, "reason": reason, "message": message}
    return {"status": {"conditions": [{**said, "lastHeartbeatTime": at, "lastTransitionTime": at}]}}


def healthy(found: Sequence[Condition], unhealthy_types: Sequence[str]) -> bool:
    """Whether these conditions are those of a working node."""
    return bool(found) and not bad(found, unhealthy_types)


def bad(found: Sequence[Condition], unhealthy_types: Sequence[str]) -> list[Condition]:
    """The conditions that make a node unhealthy."""
    return [
        one
        for one in found
        if (one["type"] == READY and one["status"] != "True")
        or (one["type"] in unhealthy_types and one["status"] != "False")
    ]


def changed(before: Sequence[Condition], now: Sequence[Condition]) -> bool:
    """Whether a condition was added, removed, or got another status; messages and heartbeats do not count."""

    def compared(found: Sequence[Condition]) -> dict[str, tuple[str, str]]:
        # The reason of InPlaceUpdate is the state of the update: MachineDeployments wait for it.
        return {
            str(one.get("type")): (
                str(one.get("status")),
                str(one.get("reason")) if one.get("type") == IN_PLACE else "",
            )
            for one in found
        }

    return compared(before) != compared(now)


def awaits_critical_components(node: Object) -> bool:
    """Whether the node is tainted until its system components run."""
    return any(
        taint.get("key") == machinekeys.CRITICAL_COMPONENTS and taint.get("effect") == "NoSchedule"
        for taint in node_taints(node)
    )


def in_words(found: Sequence[Condition]) -> str:
    """Conditions as text."""
    return "; ".join(
        f"{one['type']} is {one['status']} ({one.get('reason', 'no reason')}: {one.get('message', '')})"
        for one in found
    )


def sync_patch(machine: Object, node: Object) -> Patch | None:
    """The strategic merge patch that gives the node what its Machine asks for; None if nothing differs."""
    template = _template(machine.spec.get("nodeTemplate"))
    last = _template(_noted(node, machinekeys.LAST_APPLIED))
    metadata: Patch = {}
    for kind in _KINDS:
        wanted, found = template[kind], getattr(node, kind)
        changes = {name: value for name, value in wanted.items() if found.get(name) != value}
        # Only entries that we applied earlier are removed: others belong to other controllers.
        changes |= {name: None for name in last[kind] if name not in wanted and name in found}
        if changes:
            metadata[kind] = changes
    if node.labels.get(machinekeys.NODE_MACHINE) != machine.name:
        metadata.setdefault("labels", {})[machinekeys.NODE_MACHINE] = machine.name
    # The form that machine-controller-manager keeps in the annotation.
    kept = {kind: dict(sorted(template[kind].items())) for kind in _KINDS if template[kind]}
    spec = {"taints": list(template["taints"])} if template["taints"] else {}
    applied = json.dumps({"metadata": kept, "spec": spec}, separators=(",", ":"), sort_keys=True)
    if node.annotations.get(machinekeys.LAST_APPLIED) != applied:
        metadata.setdefault("annotations", {})[machinekeys.LAST_APPLIED] = applied
    if machinekeys.NOT_MANAGED in node.annotations:
        metadata.setdefault("annotations", {})[machinekeys.NOT_MANAGED] = None
    if machinekeys.NODE_FINALIZER not in node.finalizers and not node.deleting:
        metadata["finalizers"] = [machinekeys.NODE_FINALIZER]
    taints = _merged_taints(template["taints"], last["taints"], node_taints(node))
    if not metadata and taints is None:
        return None
    patch: Patch = {"metadata": {"uid": node.uid, **metadata}}
    if taints is not None:
        # The list is replaced as a whole: the version makes a taint that was added meanwhile a conflict.
        patch["metadata"]["resourceVersion"] = node.resource_version
        patch["spec"] = {"taints": taints}
    return patch


def cloud_patch(
    node: Object, provider_id: str, labels: Mapping[str, str], capacity: Mapping[str, str]
) -> Patch:
    """The strategic merge patch that a cloud controller makes; empty if nothing differs.

    With the capacity, in an annotation, a webhook corrects what kubelets report.
    """
    changes: Patch = {}
    size = {machinekeys.CAPACITY: json.dumps(dict(capacity), separators=(",", ":"))} if capacity else {}
    for kind, wanted in (("labels", labels), ("annotations", size)):
        found = getattr(node, kind)
        if missing := {name: value for name, value in wanted.items() if found.get(name) != value}:
            changes.setdefault("metadata", {})[kind] = missing
    if provider_id and not node.spec.get("providerID"):  # it never changes
        changes["spec"] = {"providerID": provider_id}
    return merge(changes, {"metadata": {"uid": node.uid}}) if changes else {}


def capacity_patches(machine_class: Object, node: Object) -> tuple[Patch, Patch] | None:
    """The patches of a node's status and of its metadata that set the virtual capacity of its MachineClass.

    None if nothing differs. Amounts are compared with the last written ones: the API normalizes quantities.
    """
    wanted = virtual_capacity(machine_class)
    noted = mapping(_noted(node, machinekeys.LAST_VIRTUAL_CAPACITY))
    last = {str(name): str(amount) for name, amount in noted.items()}
    there = mapping(node.status.get("capacity"))
    if wanted == last and wanted.keys() <= there.keys():
        return None
    changes: Patch = {**wanted, **{name: None for name in last if name not in wanted and name in there}}
    applied = json.dumps(wanted, separators=(",", ":"), sort_keys=True) if wanted else None
    head = {"uid": node.uid}
    return (
        {"metadata": head, "status": {"capacity": changes}},
        {"metadata": {**head, "annotations": {machinekeys.LAST_VIRTUAL_CAPACITY: applied}}},
    )


def virtual_capacity(machine_class: Object) -> dict[str, str]:
    """The capacity that a MachineClass adds to its nodes. Invalid quantities are skipped."""
    template = mapping(machine_class.raw.get("nodeTemplate"))
    amounts = mapping(template.get("virtualCapacity"))
    return {str(k): str(v) for k, v in amounts.items() if QUANTITY.fullmatch(str(v))}


def compared(node: Object) -> Any:
    """The part of a node that its Machine depends on: no heartbeats, no images."""
    said = [(one["type"], one["status"], one.get("reason"), one.get("message")) for one in conditions(node)]
    head = (node.uid, node.deleting, node.labels, node.annotations, node.finalizers)
    return head, node_taints(node), node.spec.get("unschedulable"), said


def _noted(node: Object, annotation: str) -> Any:
    """The JSON in an annotation; None if it is missing or invalid: tenants can write to nodes."""
    try:
        return json.loads(str(node.annotations.get(annotation, "")))
    except (ValueError, RecursionError):
        return None


def _template(raw: Any) -> dict[str, Any]:
    """The labels, annotations and taints of a node template. Entries of the wrong type are skipped."""
    template = mapping(raw)
    metadata, taints = mapping(template.get("metadata")), mapping(template.get("spec")).get("taints")
    found: dict[str, Any] = {
        kind: {str(k): v for k, v in mapping(metadata.get(kind)).items() if isinstance(v, str)}
        for kind in _KINDS
    }
    found["taints"] = [one for one in mappings(taints) if one.get("key")]
    return found


def _merged_taints(
    wanted: list[Mapping[str, Any]], last: list[Mapping[str, Any]], found: list[Mapping[str, Any]]
) -> list[dict[str, Any]] | None:
    """All taints for the node, in the order found; None if nothing differs."""

    def identity(taint: Mapping[str, Any]) -> tuple[str, str]:
        return str(taint.get("key")), str(taint.get("effect"))

    ours = {identity(one): dict(one) for one in wanted}
    former = {identity(one) for one in last} - ours.keys()
    result = []
    for one in (dict(one) for one in found if identity(one) not in former):
        own = ours.pop(identity(one), None)
        result.append(own if own and (own.get("value") or "") != (one.get("value") or "") else one)
    result += ours.values()
    return None if result == [dict(one) for one in found] else result
