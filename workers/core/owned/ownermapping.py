"""Predicates and mapping of owned objects: which of their changes requeue the owner, for instance drift."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from bus import subjects
from bus.messages import Announcement
from bus.workqueue.routing import PreviousVersion
from windowbox.kinds import RESOURCES
from windowbox.models.objects import Object, mappings
from windowbox.models.refs import (
    API_SERVER,
    MACHINE_DEPLOYMENTS,
    MACHINE_SETS,
    MACHINES,
    MANAGED_RESOURCES,
    NAMESPACES,
    PLANE_DEPLOYMENTS,
    PODS,
    SERVICES,
    ObjectRef,
    Resource,
)
from workers.core.lifecycle.lifecyclemapping import LifeCycleMapping
from workers.core.owned import manifests


def ready(pod: Object) -> bool:
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in _conditions(pod))


def _conditions_and_generation(object: Object) -> Any:
    found = [(c.get("type"), c.get("status"), c.get("reason"), c.get("message")) for c in _conditions(object)]
    return found, object.status.get("observedGeneration")


_AWAITED_STATUS: dict[str, Callable[[Object], Any]] = {
    MACHINE_DEPLOYMENTS.id: lambda deployment: (
        {name: value for name, value in deployment.status.items() if name != "conditions"},
        _conditions_and_generation(deployment),
    ),
    MANAGED_RESOURCES.id: _conditions_and_generation,
    PODS.id: ready,
    SERVICES.id: lambda service: service.status.get("loadBalancer"),
}
"""The part of a status that owners wait for."""

_ALONE: dict[str, Callable[[Object], Any]] = {
    PLANE_DEPLOYMENTS.id: lambda plane: (
        plane.spec.get("replicas")
        if plane.name == API_SERVER
        else (plane.generation, _conditions_and_generation(plane))
    ),
    MACHINE_SETS.id: lambda set_: (
        set_.spec.get("template"),
        set_.status.get("replicas"),
        set_.metadata.get("ownerReferences"),
    ),
    MACHINES.id: lambda machine: [
        c.get("reason") for c in _conditions(machine) if c.get("type") == "InPlaceUpdate"
    ],
}
"""Kinds that other controllers change all the time: nothing else of them matters."""


async def triggers(kind: str, change: Announcement, before: PreviousVersion, *, awaited: bool = True) -> bool:
    """Whether the change requeues the owner: drift, or a status that the owner waits for.

    An addition does not: most likely a run of the owner created the object. The status counts only if it is
    `awaited`.
    """
    if change.gone or change.omitted:
        return True
    if change.operation == "ADDED":
        return False
    old = await before.object()
    return old is None or matters(kind, old, change.object(), awaited=awaited)


def matters(kind: str, old: Object, new: Object, *, awaited: bool = True) -> bool:
    """Whether the difference requeues the owner. Fields that others add do not: runs leave them alone."""
    if of_kind := _ALONE.get(kind):
        return bool(of_kind(old) != of_kind(new))
    if any(old.metadata.get(name) != new.metadata.get(name) for name in ("uid", "deletionTimestamp")):
        return True
    status, resource = _AWAITED_STATUS.get(kind) if awaited else None, RESOURCES[kind]
    if (status and status(old) != status(new)) or manifests.differs(resource, new, dict(old.raw)):
        return True
    if resource == NAMESPACES and old.labels != new.labels:
        return True  # whose a namespace is, its labels say
    # The Worker removes what others add.
    return resource == MACHINE_DEPLOYMENTS and manifests.differs(resource, old, dict(new.raw))


def _conditions(object: Object) -> list[Mapping[str, Any]]:
    return mappings(object.status.get("conditions"))


Owners = Callable[[ObjectRef], Iterable[ObjectRef]]
"""The objects that may own the named one."""
Awaited = Callable[[ObjectRef, Object], bool]
"""Whether the owner waits for the status of an owned object."""
Wrote = Callable[[str, ObjectRef, str], bool]
"""Whether a run in flight of the owner, by its key, has written this version of an object."""
Known = tuple[Callable[[], Awaitable[object]], ...]
"""Wait until all owners are known: before, an owned object would look like an orphan."""


class OwnerMapping:
    """The rules of the life cycle, and events of owned objects. Objects without owner requeue nothing."""

    def __init__(
        self,
        own: LifeCycleMapping,
        owners: Owners,
        *,
        made: tuple[Resource, ...],
        awaited: tuple[Resource, ...] = (),
        known: Known = (),
        awaits_status: Awaited = lambda *_: True,
        wrote: Wrote = lambda *_: False,
    ) -> None:
        self._own = own
        self._owners = owners
        self._known = known
        self._awaits_status = awaits_status
        self._wrote = wrote
        self._awaited = frozenset(resource.id for resource in awaited)
        self.owned: tuple[str, ...] = tuple(dict.fromkeys(resource.id for resource in (*made, *awaited)))
        self.kinds: tuple[str, ...] = (*own.kinds, *self.owned)

    async def keys_for(self, change: Announcement, before: PreviousVersion) -> list[str]:
        ref = subjects.ref(subjects.without("object", change.stored.subject))
        if ref.kind not in self.owned:
            return await self._own.keys_for(change, before)
        for all_are_known in self._known:
            await all_are_known()
        owners = [subjects.key(owner) for owner in self._owners(ref)]
        # An addition counts only for kinds that others create.
        appeared = ref.kind in self._awaited and change.operation == "ADDED"
        if change.operation == "MODIFIED":
            # Of a listing this would be wrong: it shows neither the versions before nor what they changed.
            owners = [owner for owner in owners if not self._wrote(owner, ref, change.version)]
        if not owners or appeared:
            return owners
        whole = not (change.gone or change.omitted)
        awaited = whole and self._awaits_status(ref, change.object())
        return owners if await triggers(ref.kind, change, before, awaited=awaited) else []

    def defers(self, change: Announcement) -> bool:
        """Whether a check may wait: a listing shows the object for the first time, and no owner awaits it.

        A provider cluster that joins has objects of all its Shoots.
        """
        kind = subjects.seen_of_kind(change.stored.subject)
        first = change.operation == "LISTED" and not change.predecessor
        return first and kind in self.owned and kind not in self._awaited and kind not in _AWAITED_STATUS

    def unfinished(self, object: Object) -> bool:
        return self._own.unfinished(object)
