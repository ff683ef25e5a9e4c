"""What is played: which kinds, and what is written into an object of each."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from tools.gardener.machines import network as plain
from windowbox.models.objects import Object, mappings
from windowbox.models.refs import MANAGED_RESOURCES, NETWORKS, SECRETS, Resource
from workers.core.owned.manifests import Manifest, manifest

OPERATION = "gardener.cloud/operation"
_NO_OPERATION = {"metadata": {"annotations": {OPERATION: None}}}
_TYPES = frozenset({"calico", "cilium"})
_NETWORK = "extension-networking-plain"
_UNCLEANED = "shoot.gardener.cloud/no-cleanup"
"""A label of what gardenlet leaves alone when it cleans up a Shoot before it deletes its Network."""


class Patch(NamedTuple):
    """A JSON merge patch of an object, or of its subresource."""

    body: dict[str, Any]
    part: str = ""


class Part(NamedTuple):
    """A kind, and the patches that an object of it needs, in their order; none if all is said."""

    resource: Resource
    patches: Callable[[Object], list[Patch]]
    objects: Callable[[Object], list[tuple[Resource, Manifest]]] = lambda found: []
    """What it brings, before it is patched."""


def monitoring(found: Object) -> list[Patch]:
    """A Prometheus or Alertmanager whose replicas all run.

    Of all kinds of observability, gardener-resource-manager asks these two whether they are healthy.
    """
    replicas = found.spec.get("replicas", 1)
    conditions = [_condition(found, type) for type in ("Available", "Reconciled")]
    wanted = {
        "paused": False,
        "replicas": replicas,
        "updatedReplicas": replicas,
        "availableReplicas": replicas,
        "unavailableReplicas": 0,
        "conditions": conditions,
    }
    if found.deleting or wanted.items() <= found.status.items():
        return []
    return [Patch({"status": wanted}, "status")]


def network(found: Object) -> list[Patch]:
    """A Network that is done once its objects are handed over.

    It gets no finalizer, so that a deletion needs no answer.
    """
    if found.spec.get("type") not in _TYPES or found.deleting:
        return []
    last, operation = found.last_operation, found.annotations.get(OPERATION)
    done = last.get("state") == "Succeeded"
    migrated = done and last.get("type") == "Migrate"
    match operation:
        case "migrate":
            return [_succeeded(found, "Migrate"), Patch(_NO_OPERATION)]
        case "restore":
            return [_succeeded(found, "Restore"), Patch(_NO_OPERATION)]
        case "reconcile" if migrated:
            return [Patch(_NO_OPERATION)]
        case "reconcile":
            return [Patch(_NO_OPERATION), _succeeded(found, "Reconcile" if last else "Create")]
        case None if not done:
            return [_succeeded(found, "Reconcile" if last else "Create")]
        case _:  # such as wait-for-state: gardenlet puts back the state of the object first
            return []


def network_objects(found: Object) -> list[tuple[Resource, Manifest]]:
    """A plain network for the Shoot, in a ManagedResource that is deleted with the Network."""
    if found.annotations.get(OPERATION) == "migrate":
        return []
    owner = {"apiVersion": f"{NETWORKS.group}/{NETWORKS.version}", "kind": NETWORKS.kind}
    owners = [{**owner, "name": found.name, "uid": found.uid}]
    data = {"network.yaml": base64.b64encode(plain.MANIFESTS.read_bytes()).decode()}
    spec = {"secretRefs": [{"name": _NETWORK}], "injectLabels": {_UNCLEANED: "true"}}
    return [
        (SECRETS, manifest(SECRETS, _NETWORK, found.namespace, owners=owners, data=data)),
        (
            MANAGED_RESOURCES,
            manifest(MANAGED_RESOURCES, _NETWORK, found.namespace, owners=owners, spec=spec),
        ),
    ]


def _condition(found: Object, type: str) -> dict[str, Any]:
    """The condition `type` as true. It keeps the time since when it is."""
    before = [one for one in mappings(found.status.get("conditions")) if one.get("type") == type]
    since = [one.get("lastTransitionTime") for one in before if one.get("status") == "True"]
    return {
        "type": type,
        "status": "True",
        "reason": "Played",
        "message": "played: no such program runs",
        "observedGeneration": found.generation,
        "lastTransitionTime": since[0] if since else _now(),
    }


def _succeeded(found: Object, type: str) -> Patch:
    operation = {
        "type": type,
        "state": "Succeeded",
        "progress": 100,
        "description": "played: a plain network connects Pods",
        "lastUpdateTime": _now(),
    }
    status = {"observedGeneration": found.generation, "lastOperation": operation, "lastError": None}
    return Patch({"status": status}, "status")


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _monitoring(plural: str, kind: str) -> Part:
    return Part(Resource("monitoring.coreos.com", "v1", plural, kind), monitoring)


PARTS = (
    _monitoring("prometheuses", "Prometheus"),
    _monitoring("alertmanagers", "Alertmanager"),
    Part(NETWORKS, network, network_objects),
)
