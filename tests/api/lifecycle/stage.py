"""A life cycle on a real bus and a real API server, whose runs a test starts one by one."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from bus import intents, streams, subjects
from bus.clusters.clusters import Clusters
from bus.clusters.registry import Registry
from bus.messages import Reason, StatusIntent, Wish
from bus.outcomes import Outcome
from bus.transport import consumers
from bus.transport.connection import Bus, connected
from bus.workqueue.pool import DeliveryHold, Item
from tests.support import leftovers, loopback
from tests.support.servers import ControlPlane
from watchers.limits import Shared
from watchers.mirror import Mirror
from windowbox.clients.kubernetes import kube
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import WindowboxError
from windowbox.models.objects import Object
from windowbox.models.refs import DNSRECORDS, RUNTIME, ObjectRef
from windowbox.settings.bussettings import Access
from workers.core.lifecycle.actuators import Actuator, Run, Status
from workers.core.lifecycle.lifecycle import LifeCycle
from workers.core.lifecycle.operations import Flow
from workers.core.lifecycle.runpredicates import Scope
from workers.core.lifecycle.world import World
from workers.core.reconcile import EXTENSION_BACKOFF, Request, reconcile
from workers.core.recorder_live import LiveRecorder
from workers.core.reports import Reports
from workers.dns.record.actuator import KIND

LONG_AGO = "2026-01-01T00:00:00Z"


@dataclass
class Crew(Actuator):
    """Does nothing, and records the calls."""

    asked: list[str] = field(default_factory=list)
    task: Callable[[], Awaitable[None]] | None = None
    error: WindowboxError | None = None
    status: Status = field(default_factory=dict)

    async def reconcile(self, run: Run) -> Status:
        await self._do("reconcile")
        return self.status

    async def restore(self, run: Run) -> Status:
        await self._do("restore")
        return {}

    async def delete(self, run: Run) -> None:
        await self._do("delete")

    async def force_delete(self, run: Run) -> None:
        await self._do("force delete")

    async def migrate(self, run: Run) -> None:
        await self._do("migrate")

    def conditions(
        self, object: Object, flow: Flow, succeeded: bool, now: datetime
    ) -> list[dict[str, Any]] | None:
        return None

    async def _do(self, word: str) -> None:
        self.asked.append(word)
        if self.task:
            await self.task()
        if self.error:
            raise self.error


@dataclass
class Stage:
    """A life cycle, its bus and its cluster."""

    bus: Bus
    api: Kube
    crew: Crew
    life: LifeCycle
    clusters: Clusters
    type: str

    async def record(self, **metadata: Any) -> ObjectRef:
        """A new DNSRecord that only this life cycle serves, announced on the bus."""
        name = f"l-{uuid.uuid4().hex[:8]}"
        await self.api.create(
            DNSRECORDS,
            "default",
            {
                "apiVersion": "extensions.gardener.cloud/v1alpha1",
                "kind": "DNSRecord",
                "metadata": {"name": name} | metadata,
                "spec": {"type": self.type, "name": "a.example", "recordType": "A"}
                | {"values": [], "secretRef": {}},
            },
        )
        ref = ObjectRef(RUNTIME, DNSRECORDS.id, "default", name)
        await self.announced(ref)
        return ref

    async def announced(self, ref: ObjectRef) -> None:
        """Wait until the bus has the API's version."""
        version = (await self.live(ref)).resource_version
        async with asyncio.timeout(60):
            following = consumers.follow(self.bus, streams.OBJECTS, [subjects.seen(ref)])
            async with contextlib.aclosing(following):  # type: ignore[type-var]
                async for seen in following:
                    if seen and seen.headers["Wb-Version"] == version:
                        return

    async def live(self, ref: ObjectRef) -> Object:
        return await self.api.get(DNSRECORDS, ref.namespace, ref.name)

    def recorder(self, ref: ObjectRef) -> LiveRecorder:
        item = Item(subjects.key(ref), Wish(reason=Reason.EVENT), 1, 1, DeliveryHold(60))
        return LiveRecorder(self.bus, self.clusters, item)

    async def run(self, ref: ObjectRef, recorder: LiveRecorder | None = None, reason: str = "event") -> str:
        """The result of a run."""
        return (await self.outcome(ref, Wish(reason=reason), recorder)).result

    async def outcome(self, ref: ObjectRef, wish: Wish, recorder: LiveRecorder | None = None) -> Outcome:
        recorder = recorder or self.recorder(ref)
        request = Request(ref, wish, recorder, Reports(self.bus, ref, recorder), EXTENSION_BACKOFF)
        return await reconcile(self.life, request)

    async def report(self, ref: ObjectRef, patch: dict[str, Any]) -> None:
        """Leave a report, like a worker that dies before it requests the patch."""
        intent = StatusIntent(uid=(await self.live(ref)).uid, patch=patch)
        await self.bus.publish(subjects.intent(subjects.key(ref)), intent.encoded())

    async def to_be_written(self, ref: ObjectRef) -> bool:
        wish = subjects.wish(intents.PATCH, subjects.key(ref))
        return await self.bus.last(streams.TRIGGERS, wish) is not None


def said(type_: str, state: str) -> dict[str, Any]:
    operation = {"type": type_, "state": state, "lastUpdateTime": LONG_AGO}
    return {"observedGeneration": 1, "lastOperation": operation}


@contextlib.asynccontextmanager
async def staged(plane: ControlPlane, nats_url: str) -> AsyncIterator[Stage]:
    """A life cycle of DNSRecords of a type that no other worker serves."""
    leftovers.expect(plane, DNSRECORDS)
    async with contextlib.AsyncExitStack() as stack:
        bus = await stack.enter_async_context(connected(Access(nats_url)))
        await streams.ensure(bus)
        api = await stack.enter_async_context(kube.from_file(plane.kubeconfig))
        inner = await stack.enter_async_context(contextlib.AsyncExitStack())
        opened = Clusters(api, Registry(bus), loopback.SETTINGS, {}, inner)
        type_ = f"none-{uuid.uuid4().hex[:8]}"
        crew, world = Crew(), World(bus, opened)
        life = LifeCycle(KIND, crew, Scope(frozenset({type_}), frozenset({"shoot"})), world)
        async with asyncio.TaskGroup() as group:
            mirror = Mirror(bus, api, RUNTIME, DNSRECORDS, Shared(bus))
            tasks = [group.create_task(mirror.run()), group.create_task(world.run())]
            await world.complete()
            yield Stage(bus, api, crew, life, opened, type_)
            for task in tasks:
                task.cancel()
