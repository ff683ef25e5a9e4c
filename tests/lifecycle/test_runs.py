"""Runs that something goes wrong with, on a real bus and a real API server."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from bus import intents, streams, subjects
from bus.connection import Access, Bus, connected
from bus.messages import StatusIntent, Wish
from bus.pool import Hold, Item
from bus.registry import Registry
from tests.rules import rule
from tests.servers import ControlPlane
from watchers.mirror import Mirror
from windowbox.clients import kube
from windowbox.clients.clusters import Clusters
from windowbox.clients.kube import Kube
from windowbox.errors import Refused, Unreachable
from windowbox.models.objects import Object
from windowbox.models.refs import DNSRECORDS, RUNTIME, ObjectRef
from windowbox.sandbox import processes
from workers.dnsrecord.actuator import KIND
from workers.lifecycle import runs
from workers.lifecycle.events import Scope
from workers.lifecycle.kinds import Actuator, Run, Status
from workers.lifecycle.operations import Flow
from workers.lifecycle.runs import LifeCycle
from workers.lifecycle.world import World
from workers.live import LiveDoors

LONG_AGO = "2026-01-01T00:00:00Z"


@dataclass
class Crew(Actuator):
    """Does nothing, and remembers what it was asked for."""

    asked: list[str] = field(default_factory=list)
    task: Callable[[], Awaitable[None]] | None = None
    error: Refused | None = None

    async def reconcile(self, run: Run) -> Status:
        await self._do("reconcile")
        return {}

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
    """A life cycle, and all it sees."""

    bus: Bus
    api: Kube
    crew: Crew
    life: LifeCycle
    clusters: Clusters
    type: str

    async def record(self, **metadata: Any) -> ObjectRef:
        """A new DNSRecord that nobody else serves, announced on the bus."""
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
        """Wait until the bus knows what the API has now."""
        version = (await self.live(ref)).resource_version
        async with asyncio.timeout(20):
            while True:
                seen = await self.bus.last(streams.OBJECTS, subjects.seen(ref))
                if seen and seen.headers["Wb-Version"] == version:
                    return
                await asyncio.sleep(0.02)

    async def live(self, ref: ObjectRef) -> Object:
        return await self.api.get(DNSRECORDS, ref.namespace, ref.name)

    def doors(self, ref: ObjectRef) -> LiveDoors:
        item = Item(subjects.key(ref), Wish(reason="event"), 1, 1, Hold(60))
        return LiveDoors(self.bus, self.clusters, item)

    async def run(self, ref: ObjectRef, doors: LiveDoors | None = None, reason: str = "event") -> str:
        return (await self.life.run(ref, Wish(reason=reason), doors or self.doors(ref))).word

    async def report(self, ref: ObjectRef, patch: dict[str, Any]) -> None:
        """Leave a report behind as a worker does that dies before it can have it written."""
        intent = StatusIntent(uid=(await self.live(ref)).uid, patch=patch)
        await self.bus.publish(subjects.intent(subjects.key(ref)), intent.encoded())

    async def to_be_written(self, ref: ObjectRef) -> bool:
        wish = subjects.wish(intents.PATCH, subjects.key(ref))
        return await self.bus.last(streams.TRIGGERS, wish) is not None


def said(type_: str, state: str) -> dict[str, Any]:
    operation = {"type": type_, "state": state, "lastUpdateTime": LONG_AGO}
    return {"observedGeneration": 1, "lastOperation": operation}


@pytest.fixture
async def stage(control_plane: ControlPlane, nats_url: str) -> AsyncIterator[Stage]:
    async with contextlib.AsyncExitStack() as stack:
        bus = await stack.enter_async_context(connected(Access(nats_url)))
        await streams.ensure(bus)
        api = await stack.enter_async_context(kube.from_file(control_plane.kubeconfig))
        inner = await stack.enter_async_context(contextlib.AsyncExitStack())
        opened = Clusters(api, Registry(bus), inner)
        type_ = f"none-{uuid.uuid4().hex[:8]}"
        crew, world = Crew(), World(bus, opened)
        life = LifeCycle(KIND, crew, Scope(frozenset({type_}), frozenset({"shoot"})), world)
        async with asyncio.TaskGroup() as group:
            mirror = Mirror(bus, api, RUNTIME, DNSRECORDS)
            tasks = [group.create_task(mirror.run()), group.create_task(world.run())]
            await world.complete()
            yield Stage(bus, api, crew, life, opened, type_)
            for task in tasks:
                task.cancel()


@rule("B-1", "V-9")
async def test_while_the_api_is_away_a_run_waits_and_fails_nobody(stage: Stage, tmp_path: Path) -> None:
    ref = await stage.record()
    kubeconfig = tmp_path / "kubeconfig"
    nowhere = f"https://127.0.0.1:{processes.free_port()}"
    kubeconfig.write_text(_somewhere_else(nowhere))
    async with kube.from_file(kubeconfig) as away:
        stage.clusters.runtime = away
        outcome = await stage.life.run(ref, Wish(reason="event", attempt=3), stage.doors(ref))
    assert outcome.word == "waiting"
    assert outcome.again
    assert (outcome.again.wish.reason, outcome.again.wish.attempt) == ("retry", 4)
    assert stage.crew.asked == []


def _somewhere_else(url: str) -> str:
    return f"""
        clusters: [{{name: away, cluster: {{server: "{url}"}}}}]
        users: [{{name: me, user: {{}}}}]
        contexts: [{{name: away, context: {{cluster: away, user: me}}}}]
        current-context: away
        """


@rule("V-6", "W-7")
async def test_a_report_that_nobody_was_asked_to_write_is_remembered(stage: Stage) -> None:
    ref = await stage.record()
    await stage.report(ref, said("Create", "Succeeded"))
    assert await stage.run(ref, reason="sweep") == "nothing to do"
    assert await stage.to_be_written(ref)
    assert stage.crew.asked == []


@rule("U-1", "W-7")
async def test_a_failure_that_nobody_was_asked_to_write_is_remembered(stage: Stage) -> None:
    ref = await stage.record()
    error = {"description": "Error reconciling DNSRecord: no", "lastUpdateTime": LONG_AGO}
    await stage.report(ref, said("Create", "Error") | {"lastError": error})
    stage.crew.error = Refused("no")
    assert await stage.run(ref) == "error"
    assert await stage.to_be_written(ref)


@rule("U-4")
async def test_a_slow_run_that_ends_while_it_is_announced_has_the_last_word(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    announced = asyncio.Event()
    report = World.report

    async def hesitant(world: World, ref: ObjectRef, intent: StatusIntent, expected: int) -> int:
        sequence = await report(world, ref, intent, expected)
        if not announced.is_set():
            announced.set()
            await asyncio.sleep(0.1)  # the server has it, but we have not heard so yet
        return sequence

    monkeypatch.setattr(runs, "SLOW_SECONDS", 0)
    monkeypatch.setattr(World, "report", hesitant)
    ref = await stage.record()
    stage.crew.task = announced.wait  # type: ignore[assignment]
    assert await stage.run(ref) == "succeeded"
    reported = (await intents.last(stage.bus, subjects.key(ref))).intent
    assert reported
    assert reported.patch["lastOperation"]["state"] == "Succeeded"


@rule("V-4", "N-1", "O-6")
async def test_a_run_decides_on_what_the_api_has_not_on_what_the_bus_had(stage: Stage) -> None:
    ref = await stage.record(annotations={"gardener.cloud/operation": "reconcile"})
    doors = stage.doors(ref)
    seen = await doors.read(ref)
    assert seen
    await stage.api.merge(
        DNSRECORDS,
        ref.namespace,
        ref.name,
        {"metadata": {"annotations": {"gardener.cloud/operation": "migrate"}}},
    )

    class Behind(LiveDoors):
        async def read(self, ref: ObjectRef) -> Object | None:
            return seen

    item = Item(subjects.key(ref), Wish(reason="event"), 1, 1, Hold(60))
    assert await stage.run(ref, Behind(stage.bus, stage.clusters, item)) == "succeeded"
    assert stage.crew.asked == ["migrate"]


@rule("V-1", "N-2")
async def test_a_run_of_a_former_object_leaves_its_successor_alone(stage: Stage) -> None:
    ref = await stage.record(
        annotations={"gardener.cloud/operation": "migrate"}, finalizers=["example.com/other"]
    )

    async def replaced() -> None:
        await stage.api.merge(DNSRECORDS, ref.namespace, ref.name, {"metadata": {"finalizers": None}})
        former = await stage.live(ref)
        await stage.api.delete(DNSRECORDS, ref.namespace, ref.name)
        body = {"name": ref.name, "finalizers": ["example.com/other"], "annotations": former.annotations}
        await stage.api.create(DNSRECORDS, ref.namespace, {**former.raw, "metadata": body})

    stage.crew.task = replaced
    assert await stage.run(ref) == "succeeded"
    successor = await stage.live(ref)
    assert successor.finalizers == ("example.com/other",)
    assert successor.annotations == {"gardener.cloud/operation": "migrate"}


@rule("F-3", "V-7", "V-11")
async def test_a_deletion_can_be_done_twice(stage: Stage) -> None:
    ref = await stage.record(finalizers=[KIND.finalizer, "example.com/other"])
    await stage.api.delete(DNSRECORDS, ref.namespace, ref.name)
    await stage.announced(ref)

    class Breaking(LiveDoors):
        async def call(self, door: str, *arguments: Any, **options: Any) -> Any:
            if door == "patch":
                raise Unreachable("the API is away")
            return await super().call(door, *arguments, **options)

    item = Item(subjects.key(ref), Wish(reason="event"), 1, 1, Hold(60))
    assert await stage.run(ref, Breaking(stage.bus, stage.clusters, item)) == "waiting"
    assert KIND.finalizer in (await stage.live(ref)).finalizers
    assert await stage.run(ref) == "succeeded"
    assert stage.crew.asked == ["delete", "delete"]
    assert (await stage.live(ref)).finalizers == ("example.com/other",)


@rule("B-6")
async def test_a_run_that_takes_too_long_is_ended_and_says_so(stage: Stage) -> None:
    stage.life.kind = dataclasses.replace(KIND, deadline=0.05)
    stage.crew.task = asyncio.Event().wait  # type: ignore[assignment]
    ref = await stage.record()
    assert await stage.run(ref) == "error"
    reported = (await intents.last(stage.bus, subjects.key(ref))).intent
    assert reported
    assert "not finished within" in reported.patch["lastError"]["description"]
