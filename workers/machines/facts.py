"""What MachineSets and MachineDeployments need to know of a Machine, of a node, and of each other."""

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

_ANNOTATIONS = (
    keys.PRIORITY,
    keys.MARKED_FOR_DELETION,
    keys.PRESERVE,
    keys.LAST_PRESERVE,
)


@dataclass(frozen=True)
class MachineFacts:
    """One version of a Machine, as far as those above it look at it."""

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
    """A digest of what templates copy to existing Machines."""
    update: str = ""
    """How far an update in place of its node is: the reason of the condition."""
    failure: Mapping[str, Any] | None = None
    """Its last operation, if that has failed."""

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
        """Until when it is preserved."""
        return instant(self.preserved_until)

    def record(self) -> dict[str, Any]:
        """As JSON, without what is empty."""
        return {name: value for name, value in asdict(self).items() if value}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> MachineFacts:
        return cls(**record)


def machine(found: Object) -> MachineFacts:
    """The facts of a Machine. Fields of the wrong type read as empty."""
    spec, status = found.spec, mapping(found.status.get("currentStatus"))
    operation = found.last_operation
    owner = controller(found)
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
        update=_update(found),
        failure=dict(operation) if operation.get("state") == OperationState.FAILED else None,
    )


def _update(machine: Object) -> str:
    said = mappings(machine.status.get("conditions"))
    return next((str(one.get("reason") or "") for one in said if one.get("type") == "InPlaceUpdate"), "")


def digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def controller(found: Object) -> Mapping[str, Any] | None:
    """By whom the object says to be controlled."""
    owners = found.metadata.get("ownerReferences")
    named: Iterable[Any] = owners if isinstance(owners, list) else ()
    return next((one for one in named if isinstance(one, Mapping) and one.get("controller")), None)


def owner_reference(owner: Object, kind: str) -> dict[str, Any]:
    """With which an object says that this MachineSet or MachineDeployment controls it."""
    return {
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def selects(selector: object, labels: Mapping[str, str]) -> bool:
    """Whether a label selector matches. One that is empty or cannot be read selects nothing."""
    content = mapping(selector)
    matched = strings(mapping(content.get("matchLabels")))
    expressions = content.get("matchExpressions") or []
    if not isinstance(expressions, list) or not (matched or expressions):
        return False
    return all(labels.get(name) == value for name, value in matched.items()) and all(
        _meets(mapping(one), labels) for one in expressions
    )


def _meets(requirement: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    name, values = str(requirement.get("key")), requirement.get("values") or []
    match requirement.get("operator"):
        case "In":
            return name in labels and labels[name] in values
        case "NotIn":
            return labels.get(name) not in values
        case "Exists":
            return name in labels
        case "DoesNotExist":
            return name not in labels
        case _:
            return False


def node_taints(node: Object) -> list[Json]:
    return mappings(node.spec.get("taints"))


def strings(value: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): str(one) for name, one in value.items() if one is not None}


def number(value: object) -> int:
    """A count in a status or spec; 0 where it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
