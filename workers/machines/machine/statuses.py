"""The status of a Machine: what it says, and what a run makes it say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from windowbox.models.extensions import instant, spelled
from windowbox.models.machines import OperationState, OperationType, Phase
from windowbox.models.objects import Object, mapping, mappings
from workers.machines.machine.nodes import Condition
from workers.machines.machine.phases import Change, MachineState

Patch = dict[str, Any]

_LONGEST = 4000
"""Characters of a description."""
_EPOCH = datetime.fromtimestamp(0, UTC)
CREATING = "Creating machine on cloud provider"
CREATED = "Created machine on cloud provider"
FAILURE = "Cloud provider message - "
TERMINATING = "Set machine status to termination. Now, getting VM Status"
DRAINING = "Initiate node drain"
DELETING = "Initiate VM deletion"


def current(machine: Object) -> Mapping[str, Any]:
    return mapping(machine.status.get("currentStatus"))


def phase(machine: Object) -> str:
    return str(current(machine).get("phase") or "")


def created(machine: Object) -> datetime:
    return instant(machine.metadata.get("creationTimestamp")) or _EPOCH


def deletion_asked(machine: Object) -> datetime | None:
    return instant(machine.metadata.get("deletionTimestamp"))


def state(machine: Object) -> MachineState:
    last = machine.last_operation
    return MachineState(
        name=machine.name,
        phase=phase(machine),
        created=created(machine),
        since=instant(current(machine).get("lastUpdateTime")) or created(machine),
        operation=str(last.get("type") or ""),
        operation_state=str(last.get("state") or ""),
        conditions=mappings(machine.status.get("conditions")),
    )


def changed(change: Change, now: datetime, conditions: Sequence[Condition] | None = None) -> Patch:
    """A new phase. What `currentStatus` says begins to count anew."""
    at = spelled(now)
    patch: Patch = {
        "currentStatus": {
            "phase": change.phase,
            "timeoutActive": change.phase == Phase.PENDING,
            "lastUpdateTime": at,
        },
        "lastOperation": operation(change.type, change.state, change.description, at),
    }
    return patch if conditions is None else patch | {"conditions": [dict(one) for one in conditions]}


def operation(type: str, state: str, description: str, at: str, code: str | None = None) -> Patch:
    return {
        "type": type,
        "state": state,
        "description": description[:_LONGEST],
        "errorCode": code,
        "lastUpdateTime": at,
    }


def addresses(pod: Object, hostname: str) -> list[dict[str, str]]:
    """Where a machine that joins no Shoot is reached."""
    ips = sorted({str(one["ip"]) for one in mappings(pod.status.get("podIPs")) if one.get("ip")})
    return [
        {"type": "Hostname", "address": hostname},
        *({"type": "InternalIP", "address": ip} for ip in ips),
    ]


def pending(description: str, now: datetime) -> Patch:
    change = Change(Phase.PENDING, OperationType.CREATE, OperationState.PROCESSING, description)
    return changed(change, now)


def same(patch: Patch, machine: Object) -> bool:
    """Whether the Machine says all that already, whenever it was said."""
    return _within(patch, machine.status)


def _within(patch: Any, shown: Any) -> bool:
    if isinstance(patch, Mapping):
        shown = shown if isinstance(shown, Mapping) else {}
        return all(_within(v, shown.get(k)) for k, v in patch.items() if k != "lastUpdateTime")
    return bool(patch == shown)
