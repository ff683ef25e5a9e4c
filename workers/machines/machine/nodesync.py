"""Labels, annotations and taints of a Machine on its node: one patch, or none; former ones are removed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from windowbox.models import machinekeys
from windowbox.models.objects import Object, mapping, mappings
from workers.machines.facts import node_taints
from workers.machines.machine import nodes, specs

Patch = dict[str, Any]
_KINDS = ("labels", "annotations")


def patch(machine: Object, node: Object) -> Patch | None:
    """The strategic merge patch that brings the node to what its Machine asks for; None if it is there."""
    template, last = _template(machine), _last_applied(node)
    metadata: Patch = {}
    for kind in _KINDS:
        if changes := _entries(template[kind], last[kind], getattr(node, kind)):
            metadata[kind] = changes
    if node.labels.get(machinekeys.NODE_MACHINE) != machine.name:
        metadata.setdefault("labels", {})[machinekeys.NODE_MACHINE] = machine.name
    applied = _spelled(template)
    if node.annotations.get(machinekeys.LAST_APPLIED) != applied:
        metadata.setdefault("annotations", {})[machinekeys.LAST_APPLIED] = applied
    if machinekeys.NOT_MANAGED in node.annotations:
        metadata.setdefault("annotations", {})[machinekeys.NOT_MANAGED] = None
    if machinekeys.NODE_FINALIZER not in node.finalizers and not node.deleting:
        metadata["finalizers"] = [machinekeys.NODE_FINALIZER]
    taints = _taints(template["taints"], last["taints"], node_taints(node))
    if not metadata and taints is None:
        return None
    made: Patch = {"metadata": {"uid": node.uid, **metadata}}
    if taints is not None:
        # A list that is replaced as a whole: nobody may have added to it meanwhile.
        made["metadata"]["resourceVersion"] = node.resource_version
        made["spec"] = {"taints": taints}
    return made


def capacity(found: Object, node: Object) -> tuple[Patch, Patch] | None:
    """The patches of a node's status and of the node that give it what its MachineClass says of capacity.

    None if it has that. Amounts are compared with what was written last: the API spells some in other words.
    """
    wanted = virtual_capacity(found)
    last = _amounts(node.annotations.get(machinekeys.LAST_VIRTUAL_CAPACITY))
    there = mapping(node.status.get("capacity"))
    if wanted == last and wanted.keys() <= there.keys():
        return None
    changes: Patch = {**wanted, **{name: None for name in last if name not in wanted and name in there}}
    noted = json.dumps(wanted, separators=(",", ":"), sort_keys=True) if wanted else None
    annotations = {machinekeys.LAST_VIRTUAL_CAPACITY: noted}
    head = {"uid": node.uid}
    return (
        {"metadata": head, "status": {"capacity": changes}},
        {"metadata": {**head, "annotations": annotations}},
    )


def virtual_capacity(found: Object) -> dict[str, str]:
    """What a MachineClass adds to the capacity of its nodes; without what is no quantity."""
    template = mapping(found.raw.get("nodeTemplate"))
    amounts = mapping(template.get("virtualCapacity"))
    return {str(k): str(v) for k, v in amounts.items() if specs.QUANTITY.fullmatch(str(v))}


def _amounts(noted: Any) -> dict[str, str]:
    try:
        found = json.loads(str(noted)) if noted else None
    except (ValueError, RecursionError):
        found = None
    return {str(k): str(v) for k, v in mapping(found).items()}


def essence(node: Object) -> Any:
    """What of a node its Machine depends on: not its heartbeats, nor its images."""
    said = [
        (one["type"], one["status"], one.get("reason"), one.get("message")) for one in nodes.conditions(node)
    ]
    head = (node.uid, node.deleting, node.labels, node.annotations, node.finalizers)
    return head, node_taints(node), node.spec.get("unschedulable"), said


def _template(machine: Object) -> dict[str, Any]:
    """What the Machine says of its node."""
    return _read(machine.spec.get("nodeTemplate"))


def _last_applied(node: Object) -> dict[str, Any]:
    try:
        found = json.loads(str(node.annotations.get(machinekeys.LAST_APPLIED, "")))
    except (ValueError, RecursionError):
        found = None
    return _read(found)


def _read(raw: Any) -> dict[str, Any]:
    template = mapping(raw)
    metadata, taints = mapping(template.get("metadata")), mapping(template.get("spec")).get("taints")
    found: dict[str, Any] = {
        kind: {str(k): v for k, v in mapping(metadata.get(kind)).items() if isinstance(v, str)}
        for kind in _KINDS
    }
    found["taints"] = [one for one in mappings(taints) if one.get("key")]
    return found


def _spelled(template: Mapping[str, Any]) -> str:
    """As machine-controller-manager remembers it: the node template in JSON."""
    metadata = {kind: dict(sorted(template[kind].items())) for kind in _KINDS if template[kind]}
    spec = {"taints": list(template["taints"])} if template["taints"] else {}
    return json.dumps({"metadata": metadata, "spec": spec}, separators=(",", ":"), sort_keys=True)


def _entries(
    wanted: Mapping[str, str], last: Mapping[str, str], found: Mapping[str, Any]
) -> dict[str, str | None]:
    changes: dict[str, str | None] = {k: v for k, v in wanted.items() if found.get(k) != v}
    return changes | {k: None for k in last if k not in wanted and k in found}


def _taints(
    wanted: list[Mapping[str, Any]], last: list[Mapping[str, Any]], found: list[Mapping[str, Any]]
) -> list[dict[str, Any]] | None:
    """All taints the node is to have; None if it has them."""
    ours = {_identity(one): dict(one) for one in wanted}
    former = {_identity(one) for one in last} - ours.keys()
    kept = [dict(one) for one in found if _identity(one) not in former]
    result = [ours.pop(_identity(one), one) if _differs(ours, one) else one for one in kept]
    present = {_identity(one) for one in kept}
    result += [one for identity, one in ours.items() if identity not in present]
    return None if result == [dict(one) for one in found] else result


def _differs(ours: Mapping[tuple[str, str], Mapping[str, Any]], found: Mapping[str, Any]) -> bool:
    wanted = ours.get(_identity(found))
    return wanted is not None and (wanted.get("value") or "") != (found.get("value") or "")


def _identity(taint: Mapping[str, Any]) -> tuple[str, str]:
    return str(taint.get("key")), str(taint.get("effect"))
