"""A Secret shared by several objects: its finalizer is removed with the last of them."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from enum import Enum, auto
from typing import NamedTuple

from bus.transport.connection import Bus
from bus.views import View
from windowbox.errors import Malformed, Waiting
from windowbox.models.extensions import OPERATION, TIMESTAMP
from windowbox.models.objects import Object
from windowbox.models.refs import ObjectRef, Resource
from workers.core.lifecycle.actuators import Kind, Run
from workers.core.owned.targets import TargetCluster
from workers.kinds.backups import backupsecrets
from workers.kinds.backups.backupsecrets import SecretName

_NEXT = 5


class Share(Enum):
    """The action of a deleted or migrated object on the finalizer."""

    RELEASE = auto()
    LEAVE = auto()
    """Another object needs it, and removes it later."""
    WAIT = auto()
    """Another one began to leave earlier: it may have left the finalizer to us, and may still need it."""


def share(mine: Object, others: Iterable[Object], finalizer: str) -> Share:
    left = [other for other in others if not _has_released(other, finalizer)]
    if any(not _is_leaving(other) for other in left):
        return Share.LEAVE
    if any(_leaving_since(other) < _leaving_since(mine) for other in left):
        return Share.WAIT
    return Share.LEAVE if left else Share.RELEASE


class _Reference(NamedTuple):
    """An object's reference to a Secret."""

    cluster: str
    secret: SecretName
    leaving: tuple[str, str] | None
    """Since when the object is being deleted or migrated, if it is."""


class Sharers:
    """The objects of one kind, by the Secret that they reference."""

    def __init__(self, bus: Bus, resource: Resource) -> None:
        self._view: View[_Reference] = View(bus, resource.id, _reference, index=lambda found: found[:2])

    async def run(self) -> None:
        """Follow them, for ever."""
        await self._view.run()

    async def others(self, run: Run, secret: SecretName) -> list[Object]:
        """The other objects that reference this Secret, from the bus."""

        async def act() -> list[str]:
            await self._view.complete.wait()
            self._view.require_listed(run.ref.cluster)
            refs = self._view.refs((run.ref.cluster, secret))
            return sorted(ref.name for ref in refs if ref != run.ref)

        found = await run.recorder.call("sharers", {"secret": str(secret)}, act)
        objects = [await run.recorder.read(run.ref._replace(name=name)) for name in found]
        return [one for one in objects if one and _refers(one, secret)]

    def waiters(self, ref: ObjectRef, last: Object) -> list[ObjectRef]:
        """The next few leaving objects that may release the Secret, now that this object has.

        Not only the first, which may just have vanished itself.
        """
        reference = _reference(ref, last)
        if reference is None:
            return []
        going = [
            (found.leaving, other)
            for other in self._view.refs(reference[:2])
            if other != ref and (found := self._view.get(other)) and found.leaving
        ]
        return [other for _, other in heapq.nsmallest(_NEXT, going)]

    async def last_user(self, ref: ObjectRef, last: Object) -> bool:
        """Whether no object references the Secret any more, now that this one is gone.

        Two objects that leave within a second may each have left the Secret's finalizer to the other. So the
        last one checks once more.
        """
        reference = _reference(ref, last)
        if reference is None:
            return False
        await self._view.complete.wait()
        await self._view.caught_up(ref.cluster, ref.namespace)
        return all(other == ref for other in self._view.refs(reference[:2]))


async def release(run: Run, target: TargetCluster, kind: Kind, sharers: Sharers) -> None:
    """Remove the finalizer from the object's Secret, if no other object needs the Secret."""
    try:
        secret = backupsecrets.referenced(run.object.spec)
    except Malformed:
        return  # it never had a Secret
    match share(run.object, await sharers.others(run, secret), kind.finalizer):
        case Share.RELEASE:
            await backupsecrets.remove_finalizer(target, secret, kind.finalizer)
        case Share.WAIT:
            raise Waiting(f"waiting for others that refer to Secret {secret} to be gone")
        case Share.LEAVE:
            pass


def has_ended(object: Object) -> bool:
    """Whether a former object was cleaned up by a Delete run, or migrated."""
    return object.deleting or _is_handed_over(object)


def _reference(ref: ObjectRef, object: Object) -> _Reference | None:
    try:
        secret = backupsecrets.referenced(object.spec)
    except Malformed:
        return None
    return _Reference(ref.cluster, secret, _leaving_since(object) if _is_leaving(object) else None)


def _refers(object: Object, secret: SecretName) -> bool:
    found = object.spec.get("secretRef") or {}
    return (found.get("namespace"), found.get("name")) == secret


def _is_leaving(object: Object) -> bool:
    return object.deleting or object.annotations.get(OPERATION) == "migrate"


def _has_released(object: Object, finalizer: str) -> bool:
    """Whether it has released the Secret: it is leaving without our finalizer, or was migrated."""
    return finalizer not in object.finalizers and (_is_leaving(object) or _is_handed_over(object))


def _is_handed_over(object: Object) -> bool:
    last = object.last_operation
    return (last.get("type"), last.get("state")) == ("Migrate", "Succeeded")


def _leaving_since(object: Object) -> tuple[str, str]:
    since = object.metadata.get("deletionTimestamp") or object.annotations.get(TIMESTAMP)
    return str(since or ""), object.uid
