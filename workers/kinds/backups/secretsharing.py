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
from workers.core.lifecycle.kinds import Kind, Run
from workers.core.owned.targets import TargetCluster
from workers.kinds.backups import backupsecrets
from workers.kinds.backups.backupsecrets import SecretName

_NEXT = 5


class Share(Enum):
    """What an object that goes has to do about the finalizer."""

    RELEASE = auto()
    LEAVE = auto()
    """Another needs it, and takes it off later."""
    WAIT = auto()
    """Another goes, too, and began earlier: it may have left the finalizer to us, and may still need it."""


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
    """Since when the object has been going, if it is."""


class Sharers:
    """The objects of one kind, by the Secret that they refer to."""

    def __init__(self, bus: Bus, resource: Resource) -> None:
        self._view: View[_Reference] = View(bus, resource.id, _reference, index=lambda found: found[:2])

    async def run(self) -> None:
        """Follow them, for ever."""
        await self._view.run()

    async def others(self, run: Run, secret: SecretName) -> list[Object]:
        """The other objects that refer to this Secret, as the bus has them now."""

        async def act() -> list[str]:
            await self._view.complete.wait()
            self._view.require_listed(run.ref.cluster)
            refs = self._view.refs((run.ref.cluster, secret))
            return sorted(ref.name for ref in refs if ref != run.ref)

        found = await run.recorder.call("sharers", {"secret": str(secret)}, act)
        objects = [await run.recorder.read(run.ref._replace(name=name)) for name in found]
        return [one for one in objects if one and _refers(one, secret)]

    def waiters(self, ref: ObjectRef, last: Object) -> list[ObjectRef]:
        """Who may let go of the Secret, now that this object has: of those that go, the next few in line.

        Not only the first, which may be gone itself a moment ago.
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
        """Whether nobody refers to the Secret any more, now that this object is gone.

        Of two objects that go within a second, or of which one is gone before it had a finalizer, each may
        have left the Secret's finalizer to the other. The last that is gone looks again.
        """
        reference = _reference(ref, last)
        if reference is None:
            return False
        await self._view.complete.wait()
        await self._view.caught_up(ref.cluster, ref.namespace)
        return all(other == ref for other in self._view.refs(reference[:2]))


async def release(run: Run, target: TargetCluster, kind: Kind, sharers: Sharers) -> None:
    """Let go of the Secret that the object refers to, if it was the last that needs it."""
    try:
        secret = backupsecrets.referenced(run.object.spec)
    except Malformed:
        return  # it has never held on to any
    match share(run.object, await sharers.others(run, secret), kind.finalizer):
        case Share.RELEASE:
            await backupsecrets.remove_finalizer(target, secret, kind.finalizer)
        case Share.WAIT:
            raise Waiting(f"waiting for others that refer to Secret {secret} to be gone")
        case Share.LEAVE:
            pass


def has_ended(object: Object) -> bool:
    """Whether a Delete run has done what there is to do for an object that is gone, or it was handed over."""
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
    """Whether it has let go already: it vanishes, or was handed over."""
    return finalizer not in object.finalizers and (_is_leaving(object) or _is_handed_over(object))


def _is_handed_over(object: Object) -> bool:
    last = object.last_operation
    return (last.get("type"), last.get("state")) == ("Migrate", "Succeeded")


def _leaving_since(object: Object) -> tuple[str, str]:
    since = object.metadata.get("deletionTimestamp") or object.annotations.get(TIMESTAMP)
    return str(since or ""), object.uid
