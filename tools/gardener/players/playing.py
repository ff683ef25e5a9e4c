"""Play all parts: watch their objects, from the moment on at which their kind is served."""

from __future__ import annotations

import asyncio
import logging

from sandbox.simulated.simulator import Reflector
from tools.gardener.players.parts import PARTS, Part
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Missing, TransientError
from windowbox.models.objects import Object, mappings
from windowbox.models.refs import Resource

logger = logging.getLogger(__name__)

_KINDS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
Key = tuple[str, str]

_PAUSE = 0.5
_OWNER = "windowbox-players"


class Players:
    """Write what Gardener waits for into the objects of all parts."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._playing: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Play for ever. Kinds come and go with the Garden."""
        async with asyncio.TaskGroup() as group:

            def changed(key: Key, _old: bool | None, served: bool | None) -> None:
                for part in (part for part in PARTS if part.resource.id == key[1]):
                    if served:
                        self._playing[part.resource.id] = group.create_task(
                            self._play(part), name=f"play {part.resource.id}"
                        )
                    elif playing := self._playing.pop(part.resource.id, None):
                        playing.cancel()

            await Reflector(self._kube, _KINDS, _served, changed).run()

    async def _play(self, part: Part) -> None:
        """Play one kind."""
        waiting: dict[Key, Object] = {}
        woken = asyncio.Event()

        def changed(key: Key, _old: Object | None, new: Object | None) -> None:
            waiting.pop(key, None)
            if new is not None:
                waiting[key] = new
                woken.set()

        logger.info("%s are played", part.resource.id)
        async with asyncio.TaskGroup() as group:
            group.create_task(Reflector(self._kube, part.resource, lambda found: found, changed).run())
            while True:
                await woken.wait()
                woken.clear()
                while waiting:
                    key = next(iter(waiting))
                    found = waiting.pop(key)
                    try:
                        await self._answer(part, found)
                    except TransientError as error:
                        logger.warning(
                            "%s %s/%s: again in %.1f s: %s", part.resource.kind, *key, _PAUSE, error
                        )
                        await asyncio.sleep(_PAUSE)
                        waiting.setdefault(key, found)

    async def _answer(self, part: Part, found: Object) -> None:
        patches = part.patches(found)
        try:
            for resource, wanted in part.objects(found) if patches else ():
                await self._kube.apply(
                    resource, found.namespace, wanted["metadata"]["name"], wanted, owner=_OWNER
                )
            for patch in patches:
                await self._kube.merge(
                    part.resource, found.namespace, found.name, patch.body, part=patch.part
                )
        except Missing:
            return  # deleted meanwhile
        if patches:
            logger.info("%s %s/%s: played", part.resource.kind, found.namespace, found.name)


def _served(found: Object) -> bool | None:
    """True once its objects can be asked for."""
    conditions = mappings(found.status.get("conditions"))
    established = any(one.get("type") == "Established" and one.get("status") == "True" for one in conditions)
    return established or None
