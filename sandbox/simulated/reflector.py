"""A local cache of one kind, kept up to date by list and watch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Generic, TypeVar

from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import TransientError, WatchExpired
from windowbox.models.objects import Object
from windowbox.models.refs import Resource

logger = logging.getLogger(__name__)

T = TypeVar("T")

_PAUSE = 0.5


class Reflector(Generic[T]):
    """The objects of a kind, parsed by `read` (None: ignored); `changed` is called with old and new value."""

    def __init__(
        self,
        kube: Kube,
        resource: Resource,
        read: Callable[[Object], T | None],
        changed: Callable[[tuple[str, str], T | None, T | None], None],
    ) -> None:
        self.values: dict[tuple[str, str], T] = {}
        self.listed = asyncio.Event()
        self.resource = resource
        self._kube = kube
        self._read = read
        self._changed = changed

    async def run(self) -> None:
        """List and watch for ever. Lists again after every gap, so that no change is missed."""
        while True:
            try:
                await self._watch(await self._list())
            except WatchExpired:
                logger.info("%s: watch expired; listing again", self.resource.id)
            except TransientError as error:
                logger.warning("%s: again in %.1f s: %s", self.resource.id, _PAUSE, error)
                await asyncio.sleep(_PAUSE)

    async def _list(self) -> str:
        found: set[tuple[str, str]] = set()
        version = ""
        async for page in self._kube.pages(self.resource):
            version = version or page.resource_version
            found.update(self._see(Object(raw)) for raw in page.items)
        for gone in self.values.keys() - found:
            self._note(gone, None)
        self.listed.set()
        return version

    async def _watch(self, version: str) -> None:
        while True:
            async for events in self._kube.watch(self.resource, version):
                for event in events:
                    object = Object(event.object)
                    if event.type == "DELETED":
                        self._note((object.namespace, object.name), None)
                    elif event.type != "BOOKMARK":
                        self._see(object)
                version = Object(events[-1].object).resource_version

    def _see(self, object: Object) -> tuple[str, str]:
        key = object.namespace, object.name
        self._note(key, self._read(object))
        return key

    def _note(self, key: tuple[str, str], new: T | None) -> None:
        old = self.values.get(key)
        if old == new:
            return
        if new is None:
            del self.values[key]
        else:
            self.values[key] = new
        self._changed(key, old, new)
