"""Objects on the bus, as watchers mirror them."""

from __future__ import annotations

import itertools

import orjson

from bus import subjects
from bus.messages import OPERATION, UID, VERSION
from bus.transport.connection import Bus
from windowbox.models.objects import Object
from windowbox.models.refs import RUNTIME, ObjectRef, Resource

_versions = itertools.count(1)


async def see(
    bus: Bus, kind: Resource, name: str, found: Object | None, namespace: str = "", cluster: str = RUNTIME
) -> None:
    """Mirror an object; None: it was deleted."""
    operation, body = ("MODIFIED", orjson.dumps(found.raw)) if found else ("DELETED", b"")
    headers = {OPERATION: operation, UID: name, VERSION: str(next(_versions))}
    await bus.publish(subjects.seen(ObjectRef(cluster, kind.id, namespace, name)), body, headers)


async def list_all(bus: Bus, *kinds: Resource, cluster: str = RUNTIME) -> None:
    """All objects of these kinds are mirrored."""
    for kind in kinds:
        await bus.publish(subjects.listed(cluster, kind.id), b"")


async def forget(bus: Bus, kind: Resource) -> None:
    """The objects of this kind are no longer watched."""
    await bus.publish(subjects.listed(RUNTIME, kind.id), b"", {OPERATION: "DELETED"})
