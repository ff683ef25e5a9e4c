"""Mapping: from a changed object of a kind, or one that it owns, to the keys of the objects to reconcile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from bus import subjects
from bus.messages import Announcement
from bus.workqueue.routing import PreviousVersion
from windowbox.models.objects import Object
from windowbox.models.refs import ObjectRef, Resource
from workers.core.lifecycle.mapping import LifeCycleMapping
from workers.core.owned import predicates

Owners = Callable[[ObjectRef], Iterable[ObjectRef]]
"""The objects that may have made the one that is named."""
Awaited = Callable[[ObjectRef, Object], bool]
"""Whether the status of an object that was made is waited for."""
Known = tuple[Callable[[], Awaitable[object]], ...]
"""Wait until all owners are known: who asked earlier would take what they made for nobody's."""


class OwnerMapping:
    """The rules of the life cycle, and an eye on what was made. An object made by nobody concerns nobody."""

    def __init__(
        self,
        own: LifeCycleMapping,
        owners: Owners,
        *,
        made: tuple[Resource, ...],
        awaited: tuple[Resource, ...] = (),
        known: Known = (),
        awaits_status: Awaited = lambda *_: True,
    ) -> None:
        self._own = own
        self._owners = owners
        self._known = known
        self._awaits_status = awaits_status
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
        # Only of what others make it is news that it has appeared.
        appeared = ref.kind in self._awaited and change.operation == "ADDED"
        if not owners or appeared:
            return owners
        whole = not (change.gone or change.omitted)
        awaited = whole and self._awaits_status(ref, change.object())
        return owners if await predicates.triggers(ref.kind, change, before, awaited=awaited) else []

    def unfinished(self, object: Object) -> bool:
        return self._own.unfinished(object)
