"""The facts that MachineSets and MachineDeployments read from Machines, nodes, and each other."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from windowbox.models import machinekeys as keys
from windowbox.models.extensions import instant
from windowbox.models.machines import OperationState, Phase
from windowbox.models.objects import Json, Object, mapping, mappings
from workers.machines import templates

_ANNOTATIONS = (keys.PRIORITY, keys.MARKED_FOR_DELETION, keys.PRESERVE, keys.LAST_PRESERVE)


@dataclass(frozen=True)
class MachineFacts:
    """The facts about one version of a Machine."""

    name: str
    uid: str
    version: str = ""
    created: str = ""
    phase: str = ""
    deleting: bool = False
    owner: str = ""
    """The uid of its controller; empty if it has none."""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    provider_id: str = ""
    class_name: str = ""
    preserved_until: str = ""
    copied: str = ""
    """A digest of the fields that templates copy to existing Machines."""
    update: str = ""
    """How far the in-place update of its node is: the reason of the condition."""
    failure: Mapping[str, Any] | None = None
    """Its last operation, if that failed."""

    @property
    def node(self) -> str:
        return self.labels.get(keys.NODE, "")

    @property
    def terminating(self) -> bool:
        return self.deleting or self.phase == Phase.TERMINATING

    @property
    def failed(self) -> bool:
        return self.phase == Phase.FAILED

    @property
    def available(self) -> bool:
        return not self.deleting and self.phase in (Phase.AVAILABLE, Phase.RUNNING)

    @property
    def ready(self) -> bool:
        return not self.deleting and self.phase == Phase.RUNNING

    @property
    def expiry(self) -> datetime | None:
        """The end of its preservation."""
        return instant(self.preserved_until)

    def record(self) -> dict[str, Any]:
        """The facts as JSON, without empty fields."""
        return {name: value for name, value in asdict(self).items() if value}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> MachineFacts:
        return cls(**record)


def machine(found: Object) -> MachineFacts:
    """The facts of a Machine. Fields of the wrong type read as empty."""
    spec, status = found.spec, mapping(found.status.get("currentStatus"))
    operation, owner = found.last_operation, controller(found)
    updates = [one for one in mappings(found.status.get("conditions")) if one.get("type") == "InPlaceUpdate"]
    return MachineFacts(
        name=found.name,
        uid=found.uid,
        version=found.resource_version,
        created=str(found.metadata.get("creationTimestamp") or ""),
        phase=str(status.get("phase") or ""),
        deleting=found.deleting,
        owner=str(owner.get("uid", "")) if owner else "",
        labels=strings(found.labels),
        annotations={k: v for k, v in strings(found.annotations).items() if k in _ANNOTATIONS},
        provider_id=str(spec.get("providerID") or ""),
        class_name=str(mapping(spec.get("class")).get("name") or ""),
        preserved_until=str(status.get("preserveExpiryTime") or ""),
        copied=digest(templates.copied({"spec": spec})),
        update=str(updates[0].get("reason") or "") if updates else "",
        failure=dict(operation) if operation.get("state") == OperationState.FAILED else None,
    )


def digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def controller(found: Object) -> Mapping[str, Any] | None:
    """The owner reference of the object's controller; None if it has none."""
    owners = found.metadata.get("ownerReferences")
    named: Iterable[Any] = owners if isinstance(owners, list) else ()
    return next((one for one in named if isinstance(one, Mapping) and one.get("controller")), None)


def owner_reference(owner: Object, kind: str) -> dict[str, Any]:
    """The reference that makes this MachineSet or MachineDeployment the controller of an object."""
    return {
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def selects(selector: object, labels: Mapping[str, str]) -> bool:
    """Whether a label selector matches. An empty or invalid one selects nothing."""
    content = mapping(selector)
    matched = strings(mapping(content.get("matchLabels")))
    expressions = content.get("matchExpressions") or []
    if not isinstance(expressions, list) or not (matched or expressions):
        return False
    for one in map(mapping, expressions):
        name, values = str(one.get("key")), one.get("values")
        values = values if isinstance(values, list) else []
        has, found = name in labels, labels.get(name)
        met = {"In": has and found in values, "NotIn": found not in values}
        if not (met | {"Exists": has, "DoesNotExist": not has}).get(str(one.get("operator"))):
            return False
    return all(labels.get(name) == value for name, value in matched.items())


def node_taints(node: Object) -> list[Json]:
    return mappings(node.spec.get("taints"))


def strings(value: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): str(one) for name, one in value.items() if one is not None}


def number(value: object) -> int:
    """A count in a status or spec; 0 if it is missing or invalid."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
