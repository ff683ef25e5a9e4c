"""The outside calls of every life cycle, each through the recorder."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

from bus.clusters.clusters import Clusters
from bus.transport.connection import Bus
from bus.views import View
from windowbox.errors import PermanentError, WindowboxError
from windowbox.kinds import RESOURCES
from windowbox.models.extensions import ROLE
from windowbox.models.objects import Object
from windowbox.models.refs import CLUSTERS, NAMESPACES, ObjectRef
from workers.core.lifecycle.shootfacts import Blocked, ShootFacts, blocked, facts
from workers.core.recorder import Recorder


class World:
    """The bus and the clusters, as runs see them."""

    def __init__(self, bus: Bus, clusters: Clusters) -> None:
        self._bus = bus
        self._clusters = clusters
        self.namespaces = View(bus, NAMESPACES.id, lambda _, namespace: _role(namespace))
        self.shoots = View(
            bus, CLUSTERS.id, lambda _, cluster: facts(cluster), index=lambda found: found.technical_id
        )

    async def run(self) -> None:
        """Follow namespaces and Shoots on the bus, for ever."""
        await asyncio.gather(self.namespaces.run(), self.shoots.run())

    async def complete(self) -> None:
        """Wait until all existing objects have been read."""
        await self.namespaces.complete.wait()
        await self.shoots.complete.wait()

    async def live(self, ref: ObjectRef, recorder: Recorder) -> Object | None:
        """The object from the API."""

        async def find() -> Any:
            kube = await self._clusters.get(ref.cluster)
            found = await kube.find(RESOURCES[ref.kind], ref.namespace, ref.name)
            return dict(found.raw) if found else None

        raw = await recorder.call("get", str(ref), find)
        return Object(raw) if raw else None

    async def patch(
        self, ref: ObjectRef, patch: dict[str, Any], recorder: Recorder, *, passing: str = ""
    ) -> dict[str, Any]:
        """Patch the object's metadata. Returns the new metadata.

        `passing` is the uid of an object whose status is written next: watchers of this process leave out the
        version in between.
        """

        async def patch_metadata() -> dict[str, Any]:
            kube = await self._clusters.get(ref.cluster)
            if passing:  # noted before, because the event may come before the answer
                kube.begin_passing(passing)
            try:
                patched = await kube.merge(RESOURCES[ref.kind], ref.namespace, ref.name, patch)
            except WindowboxError:
                kube.end_passing(passing)
                raise
            return {k: v for k, v in patched.metadata.items() if k != "managedFields"}

        metadata: dict[str, Any] = await recorder.call("patch", patch, patch_metadata, effect=True)
        return metadata

    async def shoot(
        self, ref: ObjectRef, recorder: Recorder, *, required: bool = False
    ) -> tuple[ShootFacts | None, Blocked | None]:
        """The Shoot of the object's namespace, if any, and why the run has to wait for it, if it has to."""
        if not ref.namespace:
            return None, None

        async def find_shoot() -> dict[str, Any]:
            # Views may lag: what they do not have, or what would block a run, is read from the API.
            namespace = ObjectRef(ref.cluster, NAMESPACES.id, "", ref.namespace)
            cluster = ObjectRef(ref.cluster, CLUSTERS.id, "", ref.namespace)
            labels, found = self.namespaces.get(namespace), self.shoots.get(cluster)
            if labels is None and (live := await self._get_live(namespace)):
                labels = _role(live)
            if blocked(ref.namespace, labels, found, required):
                live = await self._get_live(cluster)
                found = facts(live) if live else None
            return {"labels": labels, "facts": dataclasses.asdict(found) if found else None}

        answer = await recorder.call("shoot", None, find_shoot)
        found = ShootFacts.from_record(answer["facts"]) if answer["facts"] else None
        return found, blocked(ref.namespace, answer["labels"], found, required)

    async def _get_live(self, ref: ObjectRef) -> Object | None:
        kube = await self._clusters.get(ref.cluster)
        try:
            return await kube.get(RESOURCES[ref.kind], ref.namespace, ref.name)
        except PermanentError:
            return None


def _role(namespace: Object) -> dict[str, Any]:
    """The only label of a namespace that counts."""
    return {ROLE: namespace.labels.get(ROLE)}
