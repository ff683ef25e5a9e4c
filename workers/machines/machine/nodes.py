"""The state of a node, as far as its Machine depends on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windowbox.models import machinekeys
from windowbox.models.extensions import instant
from windowbox.models.objects import Object, mappings
from workers.machines.facts import node_taints

READY = "Ready"
IN_PLACE = "InPlaceUpdate"
_TEXTS = ("type", "status", "reason", "message")
_TIMES = ("lastHeartbeatTime", "lastTransitionTime")
_MOST_CONDITIONS = 64
_LONGEST = 1000
"""Characters of a message that go into a Machine's status."""

Condition = Mapping[str, Any]


def conditions(node: Object) -> list[Condition]:
    """The conditions, bounded, with nothing but text in them."""
    listed = mappings(node.status.get("conditions"))
    return [
        {name: value[:_LONGEST] for name, value in one.items() if _fits(name, value)}
        for one in listed[:_MOST_CONDITIONS]
        if one.get("type") and one.get("status")
    ]


def _fits(name: str, value: Any) -> bool:
    """Whether the API takes it in a Machine's status: the node may be a hostile server's."""
    if name in _TIMES:
        return instant(value) is not None
    return name in _TEXTS and isinstance(value, str)


def healthy(found: Sequence[Condition], unhealthy_types: Sequence[str]) -> bool:
    """Whether these conditions are those of a node that works."""
    return bool(found) and not bad(found, unhealthy_types)


def bad(found: Sequence[Condition], unhealthy_types: Sequence[str]) -> list[Condition]:
    """The conditions because of which a node does not work."""
    return [
        one
        for one in found
        if (one["type"] == READY and one["status"] != "True")
        or (one["type"] in unhealthy_types and one["status"] != "False")
    ]


def changed(before: Sequence[Condition], now: Sequence[Condition]) -> bool:
    """Whether a condition came, went, or has another status; messages and heartbeats are no change."""
    return _essence(before) != _essence(now)


def _essence(found: Sequence[Condition]) -> dict[str, tuple[str, str]]:
    return {
        str(one.get("type")): (
            str(one.get("status")),
            str(one.get("reason")) if one.get("type") == IN_PLACE else "",
        )
        for one in found
    }


def ready(node: Object) -> Condition | None:
    """The condition Ready."""
    return next((one for one in conditions(node) if one["type"] == READY), None)


def awaits_critical_components(node: Object) -> bool:
    """Whether the node is kept free until its system components run."""
    return any(
        taint.get("key") == machinekeys.CRITICAL_COMPONENTS and taint.get("effect") == "NoSchedule"
        for taint in node_taints(node)
    )


def told(found: Sequence[Condition]) -> str:
    """Conditions in words."""
    return "; ".join(
        f"{one['type']} is {one['status']} ({one.get('reason', 'no reason')}: {one.get('message', '')})"
        for one in found
    )
