"""Which kinds of which clusters this process mirrors: one owner for each, by lease; others stand by."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import zlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from bus import streams, subjects
from bus.connection import Bus
from bus.leases import Leases
from bus.messages import OPERATION
from bus.registry import Registry
from watchers.mirror import Mirror
from windowbox.clients.clusters import Clusters
from windowbox.clients.kube import Kube
from windowbox.errors import Missing, Superseded, TransientError, WindowboxError
from windowbox.kinds import RESOURCES
from windowbox.models.objects import Object
from windowbox.models.refs import RUNTIME, Resource

logger = logging.getLogger(__name__)

_CRDS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
_LONGEST_PAUSE = 10.0
_YOUNG, _PAUSE_OF_YOUNG = 120.0, 0.8
"""Seconds for which a cluster counts as new, and the longest pause while it does."""
_PARTS = 16
_PROPAGATION_SECONDS = 2.0
"""Seconds after which all who read along have heard what was said."""

Pair = tuple[str, str]
"""A cluster and a kind."""


@dataclass
class Watching:
    """Mirrors all kinds of all clusters that this process is the owner of."""

    bus: Bus
    leases: Leases
    clusters: Clusters
    registry: Registry
    kinds: tuple[str, ...]
    page: int = 500
    states: dict[str, str] = field(default_factory=dict)
    """What is being done about each kind, in words, for `status`."""
    _running: dict[Pair, asyncio.Task[None]] = field(default_factory=dict)
    _clearing: dict[Pair | str, asyncio.Task[None]] = field(default_factory=dict)

    async def run(self) -> None:
        """Mirror for ever; take in clusters that join, drop those that leave."""
        changed = asyncio.Event()
        self.registry.on_change(changed.set)
        self._clearing["leftovers"] = asyncio.create_task(self._find_leftovers(), name="watch leftovers")
        try:
            while True:
                changed.clear()
                wanted = self._wanted()
                for gone in self._running.keys() - wanted:
                    await _cancelled(self._running.pop(gone))
                    self._clearing[gone] = self._begin("forget", self._forget, gone)
                for new in wanted - self._running.keys():
                    if clearing := self._clearing.pop(new, None):
                        await _cancelled(clearing)  # what is left is compared with what there is now
                    self._running[new] = self._begin("watch", self._mirror_while_leased, new)
                await _wait_first(changed, [*self._running.values(), *self._clearing.values()])
                self._clearing = {what: task for what, task in self._clearing.items() if not task.done()}
        finally:
            tasks = [*self._running.values(), *self._clearing.values()]
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)

    def _begin(
        self, name: str, act: Callable[[str, str], Coroutine[Any, Any, None]], pair: Pair
    ) -> asyncio.Task[None]:
        return asyncio.create_task(act(*pair), name=f"{name} {pair}")

    def _wanted(self) -> set[Pair]:
        awake = [member for member in self.registry.members.values() if not member.asleep]
        joined = {(member.id, kind) for member in awake for kind in member.kinds or self.kinds}
        for cluster, kind in sorted(joined):
            if kind not in RESOURCES:
                self.states[f"{cluster}/{kind}"] = "broken: this version knows no such kind"
        known = {(cluster, kind) for cluster, kind in joined if kind in RESOURCES}
        return {(RUNTIME, kind) for kind in self.kinds} | known

    async def _find_leftovers(self) -> None:
        """Begin to clear away what clusters have left behind that left while nobody watched."""
        await self.registry.complete.wait()
        for cluster in sorted(self.registry.left):
            for kind in await self._on_the_bus(cluster):
                if cluster in self.registry.left:
                    self._clearing[cluster, kind] = self._begin("forget", self._forget, (cluster, kind))

    async def _on_the_bus(self, cluster: str) -> set[str]:
        """The kinds of which the bus holds something of the cluster."""
        while True:
            try:
                request = {"subjects_filter": subjects.seen_cluster(cluster)}
                info = await self.bus.api(f"STREAM.INFO.{streams.OBJECTS}", request)
                return {subjects.seen_of_kind(one) for one in info["state"].get("subjects") or ()}
            except WindowboxError as error:
                logger.warning("%s: what it left on the bus is not known: %s", cluster, error)
                await asyncio.sleep(1)

    async def _forget(self, cluster: str, kind: str) -> None:
        """Take out of the bus what nobody keeps up to date any more."""
        self.states.pop(f"{cluster}/{kind}", None)
        # While the lease is ours, nobody can have begun to mirror the cluster anew.
        await self.leases.once(_lease(cluster, kind), lambda: self._purge(cluster, kind))

    async def _purge(self, cluster: str, kind: str) -> None:
        listed = subjects.listed(cluster, kind)
        while True:
            try:
                # Nobody who reads along is told of a purge.
                end = await self.bus.publish(listed, b"", {OPERATION: "DELETED"})
                await self.bus.purge(streams.OBJECTS, subjects.seen_kind(cluster, kind))
                await asyncio.sleep(_PROPAGATION_SECONDS)
                return await self.bus.purge(streams.OBJECTS, listed, (end or 0) + 1)
            except WindowboxError as error:
                logger.warning("%s %s: still on the bus: %s", cluster, kind, error)
                await asyncio.sleep(1)

    async def _mirror_while_leased(self, cluster: str, kind: str) -> None:
        self.states[f"{cluster}/{kind}"] = "standing by"
        lease = _lease(cluster, kind)
        await self.leases.while_held(lease, lambda: self._mirror(cluster, self._resource(cluster, kind)))

    def _resource(self, cluster: str, kind: str) -> Resource:
        member = self.registry.members.get(cluster)
        return RESOURCES[kind]._replace(within=member.namespace if member else "")

    async def _mirror(self, cluster: str, resource: Resource) -> None:
        """Mirror one kind for ever, beginning anew whenever the bus or the API has forgotten something."""
        restart = asyncio.Event()
        try:
            with self.bus.on_reconnect(restart.set):
                await self._mirror_with_retries(cluster, resource, restart)
        finally:
            self.states[f"{cluster}/{resource.id}"] = "standing by"

    async def _mirror_with_retries(self, cluster: str, resource: Resource, restart: asyncio.Event) -> None:
        failures, began = 0, time.monotonic()
        while True:
            restart.clear()
            listed, away = asyncio.Event(), False
            try:
                kube = await self.clusters.get(cluster)
                mirror = Mirror(self.bus, kube, cluster, resource, self.page, listed)
                await _until(restart, lambda mirror=mirror: self._run(mirror))  # type: ignore[misc]
                failures = 0
                continue
            except Missing:
                await self._await_definition(kube, cluster, resource)
            except Superseded as error:
                logger.info("%s; reading the bus anew", error)
            except WindowboxError as error:
                away = isinstance(error, TransientError)
                logger.warning("%s %s: %s", cluster, resource.id, error)
                self.states[f"{cluster}/{resource.id}"] = f"broken: {error}"
            failures = 0 if listed.is_set() else failures + 1
            # The API server of a cluster that has just been woken up may be a moment behind.
            soon = away and time.monotonic() - began < _YOUNG
            longest = _PAUSE_OF_YOUNG if soon else _LONGEST_PAUSE
            await asyncio.sleep(min(longest, 0.1 * 2 ** min(failures, 10)))

    async def _run(self, mirror: Mirror) -> None:
        at = f"{mirror.cluster}/{mirror.resource.id}"
        self.states[at] = "listing"
        listed = asyncio.create_task(self._note_listed(mirror, at))
        try:
            await mirror.run()
        finally:
            listed.cancel()

    async def _note_listed(self, mirror: Mirror, at: str) -> None:
        await mirror.listed.wait()
        self.states[at] = "watching"

    async def _await_definition(self, kube: Kube, cluster: str, resource: Resource) -> None:
        """Wait until the kind exists."""
        self.states[f"{cluster}/{resource.id}"] = "waiting for its CustomResourceDefinition"
        logger.warning("%s: no kind %s yet; waiting for its CustomResourceDefinition", cluster, resource.id)
        try:
            async for events in kube.watch(_CRDS, "0", only=resource.id):
                if any(
                    e.type in ("ADDED", "MODIFIED") and _serves(Object(e.object), resource) for e in events
                ):
                    return
        except WindowboxError as error:
            logger.info("%s %s: %s", cluster, resource.id, error)
            await asyncio.sleep(1)


def _lease(cluster: str, kind: str) -> str:
    """The lease of a kind of the runtime cluster, or of a part of all other clusters.

    A lease is renewed every second, and every process gets the event: a hundred clusters with one for
    each of their kinds would cost more than all that happens in them.
    """
    if cluster == RUNTIME:
        return f"watch.{subjects.of_cluster(cluster)}.{subjects.of_cluster(kind)}"
    return f"watch.members.{zlib.crc32(cluster.encode()) % _PARTS}"


def _serves(definition: Object, resource: Resource) -> bool:
    """Whether the definition has been accepted, in the version that we read."""
    conditions, versions = _parts(definition.status, "conditions"), _parts(definition.spec, "versions")
    established = any(c.get("type") == "Established" and c.get("status") == "True" for c in conditions)
    return established and any(v.get("name") == resource.version and v.get("served") for v in versions)


def _parts(of: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    found = of.get(name)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


async def _until(stop: asyncio.Event, act: Callable[[], Awaitable[None]]) -> None:
    """Do `act` until it ends, or until `stop` is set."""
    acting = asyncio.ensure_future(act())
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([acting, stopping], return_when=asyncio.FIRST_COMPLETED)
        if acting.done():
            await acting
    finally:
        stopping.cancel()
        await _cancelled(acting)


async def _wait_first(changed: asyncio.Event, tasks: object) -> None:
    """Wait for a change; a task that ends meanwhile has failed in a way nobody foresaw."""
    waiting = asyncio.ensure_future(changed.wait())
    try:
        done, _ = await asyncio.wait([waiting, *tasks], return_when=asyncio.FIRST_COMPLETED)  # type: ignore[misc]
        for task in done - {waiting}:
            task.result()
    finally:
        waiting.cancel()


async def _cancelled(task: asyncio.Future[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
    with contextlib.suppress(asyncio.CancelledError, WindowboxError):
        task.exception()
