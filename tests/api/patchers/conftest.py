"""A patcher at work between a bus of its own and the API server, with the rights of its role."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from bus import intents, streams, subjects
from bus.clusters.clusters import Clusters
from bus.clusters.registry import Registry
from bus.messages import EventIntent, RunRecord, StatusIntent
from bus.transport import consumers
from bus.transport.connection import Bus, connected
from bus.workqueue.pool import Pool
from bus.workqueue.queue import Queue
from bus.workqueue.routing import run_due
from patchers.statuspatcher import StatusPatcher
from sandbox import processes
from tests.support import loopback
from tests.support.servers import ControlPlane
from windowbox.clients.kubernetes import kube
from windowbox.clients.kubernetes.kube import Kube
from windowbox.models.objects import Object
from windowbox.models.refs import DNSRECORDS, RUNTIME, ObjectRef, Resource
from windowbox.settings.bussettings import Access

EVENTS = Resource("", "v1", "events", "Event")


@dataclass
class Wire:
    """The way to the API server: plugged in, or not."""

    target: int
    port: int = field(default_factory=processes.free_port)
    _server: asyncio.Server | None = None
    _open: set[asyncio.StreamWriter] = field(default_factory=set)

    async def plug(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def unplug(self) -> None:
        if self._server:
            self._server.close()
        for writer in self._open:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward_reader, onward = await asyncio.open_connection("127.0.0.1", self.target)
        self._open.add(writer)
        await asyncio.gather(_pass(reader, onward), _pass(onward_reader, writer))
        self._open.discard(writer)


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
    writer.close()


@dataclass
class Desk:
    """Where reports are handed in, and what becomes of them is seen."""

    bus: Bus
    api: Kube
    wire: Wire
    clusters: Clusters

    async def record(self, name: str = "") -> Object:
        """A new DNSRecord."""
        spec = {"type": "none", "name": "a.example", "recordType": "A", "values": [], "secretRef": {}}
        return await self.api.create(
            DNSRECORDS,
            "default",
            {
                "apiVersion": "extensions.gardener.cloud/v1alpha1",
                "kind": "DNSRecord",
                "metadata": {"name": name or f"p-{uuid.uuid4().hex[:8]}"},
                "spec": spec,
            },
        )

    async def report(
        self, about: Object, *, event: EventIntent | None = None, shown: bool = False, **status: Any
    ) -> None:
        key = self.key(about)
        before = await intents.last(self.bus, key)
        version = about.resource_version
        events = (event,) if event else ()
        intent = StatusIntent(uid=about.uid, patch=status, events=events, version=version, shown=shown)
        await intents.report(self.bus, key, intent, before.sequence)

    def key(self, about: Object) -> str:
        return subjects.key(ObjectRef(RUNTIME, DNSRECORDS.id, about.namespace, about.name))

    async def versions(self, about: Object, until: Callable[[Object], bool]) -> list[Object]:
        """The versions of an object after `about`, up to the first for which `until` holds."""
        seen: list[Object] = []
        async with asyncio.timeout(60):
            watching = self.api.watch(DNSRECORDS, about.resource_version, only=about.name)
            async with contextlib.aclosing(watching):  # type: ignore[type-var]
                async for events in watching:
                    seen += [Object(event.object) for event in events if event.type == "MODIFIED"]
                    if seen and until(seen[-1]):
                        return seen
        raise AssertionError(f"{about.name} ended as {seen}")

    async def outcome(self, about: Object, word: str) -> RunRecord:
        """The first run of the pool `patch` that ends so, or says so in its note."""
        subject = subjects.run(intents.PATCH, self.key(about))
        async with asyncio.timeout(60):
            following = consumers.follow(self.bus, streams.JOURNAL, [subject], history=True)
            async with contextlib.aclosing(following):  # type: ignore[type-var]
                async for stored in following:
                    run = stored and RunRecord.model_validate_json(stored.data)
                    if run and word in (run.outcome, run.note):
                        return run
        raise AssertionError("the journal ended")

    @contextlib.asynccontextmanager
    async def open(self, rate: float = 0.0) -> AsyncIterator[None]:
        """Have reports written."""
        pool = Pool(self.bus, intents.PATCH, StatusPatcher(self.bus, self.clusters, rate))
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(pool.run()),
                group.create_task(run_due(self.bus, Queue(self.bus, intents.PATCH))),
            ]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()


@pytest.fixture
async def desk(control_plane: ControlPlane, nats_url: str, tmp_path: Path) -> AsyncIterator[Desk]:
    async with contextlib.AsyncExitStack() as stack:
        bus = await stack.enter_async_context(connected(Access(nats_url)))
        await streams.ensure(bus)
        wire = Wire(urlsplit(control_plane.url).port or 0)
        await wire.plug()
        stack.push_async_callback(wire.unplug)
        kubeconfig = tmp_path / "kubeconfig"
        text = control_plane.kubeconfigs["patcher"].read_text()
        kubeconfig.write_text(text.replace(control_plane.url, f"https://127.0.0.1:{wire.port}"))
        patcher = await stack.enter_async_context(kube.from_file(kubeconfig))
        admin = await stack.enter_async_context(kube.from_file(control_plane.kubeconfig))
        inner = await stack.enter_async_context(contextlib.AsyncExitStack())
        yield Desk(bus, admin, wire, Clusters(patcher, Registry(bus), loopback.SETTINGS, {}, inner))
