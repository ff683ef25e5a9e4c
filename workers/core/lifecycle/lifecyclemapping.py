"""Mapping: from a changed object to the keys of a kind's objects to reconcile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from bus import intents, streams, subjects
from bus.messages import Announcement
from bus.transport import consumers
from bus.transport.connection import Bus
from bus.workqueue.routing import PreviousVersion
from windowbox.models.objects import Object
from windowbox.models.refs import CLUSTERS, ObjectRef
from workers.core.lifecycle import runpredicates
from workers.core.lifecycle.actuators import Kind
from workers.core.lifecycle.orphancleanup import is_orphan
from workers.core.lifecycle.runpredicates import EventType, Scope

Waiters = Callable[[ObjectRef, Object], Iterable[ObjectRef]]
LastUser = Callable[[ObjectRef, Object], Awaitable[bool]]
"""Whether a vanished object was the last user of a shared object."""


class LifeCycleMapping:
    """The triggers of the contract for one kind."""

    def __init__(
        self,
        bus: Bus,
        kind: Kind,
        scope: Scope,
        waiters: Waiters | None = None,
        last_user: LastUser | None = None,
    ) -> None:
        self._bus = bus
        self._waiters = waiters
        self._last_user = last_user
        self.kind = kind
        self._kind = kind.resource.id
        self._scope = scope
        # Without the operation annotation, a change of their Shoot requeues objects, too.
        extra = (CLUSTERS.id,) if scope.ignore_operation_annotation else ()
        self.kinds: tuple[str, ...] = (self._kind, *extra)
        self.owned: tuple[str, ...] = ()

    async def keys_for(self, change: Announcement, before: PreviousVersion) -> list[str]:
        key = subjects.without("object", change.stored.subject)
        ref = subjects.ref(key)
        if ref.kind != self._kind:
            if change.gone:
                return []
            subject = subjects.seen_namespace(ref.cluster, self._kind, ref.name)
            found = consumers.snapshot(self._bus, streams.OBJECTS, [subject], headers_only=True)
            return [subjects.without("object", s.subject) async for s in found if not Announcement(s).gone]
        if change.omitted and not change.gone:
            return [key]
        if change.gone:
            released = await before.object()
            keys = await self._ended(key, change, released)
        else:
            object = change.object()
            new, seen = self.kind.without_unknown_operation(object), EventType[change.operation]
            old = await before.object() if runpredicates.needs_old(seen, new, self._scope) else None
            keys = [key] if runpredicates.triggers(seen, old, new, self._scope) else []
            released = None if self.kind.finalizer in object.finalizers else object
        if self._waiters and released and not change.omitted:
            # They may continue, now that this object has released what they share.
            keys += [subjects.key(waiter) for waiter in self._waiters(ref, released)]
        return keys

    def ignores(self, change: Announcement) -> bool:
        """Whether the change requeues nothing: most often it is our own write."""
        if change.gone or change.omitted or subjects.seen_of_kind(change.stored.subject) != self._kind:
            return False
        new, seen = self.kind.without_unknown_operation(change.object()), EventType[change.operation]
        if self._waiters is not None and self.kind.finalizer not in new.finalizers:
            return False
        return not (
            runpredicates.needs_old(seen, new, self._scope)
            or runpredicates.triggers(seen, None, new, self._scope)
        )

    def defers(self, change: Announcement) -> bool:
        return False  # clients wait for their own objects

    async def _ended(self, key: str, change: Announcement, last: Object | None) -> list[str]:
        """Requeue a vanished object that needs a cleanup."""
        if (
            last
            and last.uid == change.uid
            and runpredicates.responsible(self.kind.without_unknown_operation(last), self._scope)
        ):
            if self._last_user is not None and await self._last_user(subjects.ref(key), last):
                kept = True
            elif last.deleting:
                kept = False  # as of nearly all: their reports need not be read
            else:
                kept = is_orphan(last, self.kind.finalizer, (await intents.last(self._bus, key)).intent)
            if kept:
                await intents.keep_orphan(self._bus, key, last)
                return [key]
        return []

    def unfinished(self, object: Object) -> bool:
        object = self.kind.without_unknown_operation(object)
        return runpredicates.responsible(object, self._scope) and (
            runpredicates.wants_run(object) or runpredicates.overdue(object)
        )
