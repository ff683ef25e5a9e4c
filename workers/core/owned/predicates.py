"""Predicates: which changes of an owned object trigger a run of its owner, for instance drift."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bus.messages import Announcement
from bus.workqueue.routing import PreviousVersion
from windowbox.models.objects import Object, mappings
from windowbox.models.refs import (
    API_SERVER,
    MACHINE_DEPLOYMENTS,
    MACHINE_SETS,
    MACHINES,
    MANAGED_RESOURCES,
    PLANE_DEPLOYMENTS,
    PODS,
    SERVICES,
)


def ready(pod: Object) -> bool:
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in _conditions(pod))


def _conditions_and_generation(object: Object) -> Any:
    found = [(c.get("type"), c.get("status"), c.get("reason"), c.get("message")) for c in _conditions(object)]
    return found, object.status.get("observedGeneration")


def _without_times(deployment: Object) -> Any:
    numbers = {name: value for name, value in deployment.status.items() if name != "conditions"}
    return numbers, _conditions_and_generation(deployment)


def _in_place_update(machine: Object) -> Any:
    return [c.get("reason") for c in _conditions(machine) if c.get("type") == "InPlaceUpdate"]


def _class_and_replicas(machine_set: Object) -> Any:
    template = machine_set.spec.get("template")
    return template, machine_set.status.get("replicas"), machine_set.metadata.get("ownerReferences")


def _replicas_or_health(deployment: Object) -> Any:
    if deployment.name == API_SERVER:
        return deployment.spec.get("replicas")
    return deployment.generation, _conditions_and_generation(deployment)


_ALL_THAT_MATTERS: dict[str, Callable[[Object], Any]] = {
    PLANE_DEPLOYMENTS.id: _replicas_or_health,
    MACHINE_SETS.id: _class_and_replicas,
    MACHINES.id: _in_place_update,
}
"""Of kinds whose objects others make and change all the time."""

_AWAITED_STATUS: dict[str, Callable[[Object], Any]] = {
    MACHINE_DEPLOYMENTS.id: _without_times,
    MANAGED_RESOURCES.id: _conditions_and_generation,
    PODS.id: ready,
    SERVICES.id: lambda service: service.status.get("loadBalancer"),
}
"""What of a status is waited for."""

_HEAD = ("uid", "labels", "annotations", "ownerReferences", "deletionTimestamp")


async def triggers(kind: str, change: Announcement, before: PreviousVersion, *, awaited: bool = True) -> bool:
    """Whether somebody has changed what we made, or it has come to what was waited for.

    That something has appeared is no news: it was most likely we who made it. Unless it is `awaited`, its
    status does not matter.
    """
    if change.gone or change.omitted or change.operation == "LISTED":
        return True
    if change.operation == "ADDED":
        return False
    old = await before.object()
    new = change.object()
    return old is None or essence(kind, old, awaited=awaited) != essence(kind, new, awaited=awaited)


def essence(kind: str, object: Object, *, awaited: bool = True) -> Any:
    """What of an object its owner cares about."""
    if kind in _ALL_THAT_MATTERS:
        return _ALL_THAT_MATTERS[kind](object)
    status = _AWAITED_STATUS.get(kind) if awaited else None
    body = {name: value for name, value in object.raw.items() if name not in ("metadata", "status")}
    head = [object.metadata.get(name) for name in _HEAD]
    return body, head, status(object) if status else None


def _conditions(object: Object) -> list[Mapping[str, Any]]:
    return mappings(object.status.get("conditions"))
