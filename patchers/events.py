"""Kubernetes Events: each is written once."""

from __future__ import annotations

import hashlib
import logging
from datetime import UTC, datetime
from typing import Any

from bus.messages import EventIntent
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Conflict, PermanentError
from windowbox.models.refs import SERVICES, ObjectRef, Resource

logger = logging.getLogger(__name__)

_EVENTS = Resource("", "v1", "events", "Event")
_LONGEST_NOTE = 1024
_SOURCES = {SERVICES: "service-controller"}
"""In whose name we speak of kinds where users, and their tests, expect that one's."""


async def write(kube: Kube, resource: Resource, ref: ObjectRef, uid: str, event: EventIntent) -> None:
    """Tell it; if it was told before, count it. An Event that the API refuses is not worth a failure."""
    namespace = ref.namespace or "default"
    event_object = _event(resource, ref, namespace, uid, event)
    name = event_object["metadata"]["name"]
    try:
        try:
            await kube.create(_EVENTS, namespace, event_object)
        except Conflict:
            before = await kube.get(_EVENTS, namespace, name)
            count = int(before.raw.get("count") or 1) + 1
            await kube.merge(
                _EVENTS, namespace, name, {"count": count, "lastTimestamp": event_object["lastTimestamp"]}
            )
    except PermanentError as error:
        logger.info("%s: no Event: %s", ref, error)


def _event(
    resource: Resource, ref: ObjectRef, namespace: str, uid: str, event: EventIntent
) -> dict[str, Any]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    # The same words about the same object are the same Event.
    digest = hashlib.sha256(f"{uid}\0{event.reason}\0{event.note}".encode()).hexdigest()[:16]
    version = f"{resource.group}/{resource.version}" if resource.group else resource.version
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{ref.name[:200]}.{digest}", "namespace": namespace},
        "involvedObject": {
            "apiVersion": version,
            "kind": resource.kind,
            "namespace": ref.namespace,
            "name": ref.name,
            "uid": uid,
        },
        "type": event.type,
        "reason": event.reason,
        "message": event.note[:_LONGEST_NOTE],
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
        "source": {"component": _SOURCES.get(resource, "windowbox")},
    }
