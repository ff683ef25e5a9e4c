"""Roles have all the rights on the bus that they need."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import pytest

from bus import intents, streams, subjects
from bus.clusters.registry import Member, Registry
from bus.leases import liveness, presence
from bus.leases.leases import Leases
from bus.messages import OPERATION, UID, VERSION, Announcement, Reason, StatusIntent, Wish
from bus.outcomes import Done, Failed, Outcome, RequeueAfter
from bus.permissions import Role
from bus.transport import consumers
from bus.transport.connection import Bus, connected
from bus.workqueue.pool import Item, Pool
from bus.workqueue.queue import Queue
from bus.workqueue.routing import PreviousVersion, Router, run_due
from tests.support.roles import RoleServer
from tests.support.running import running
from windowbox.models.objects import Object
from windowbox.models.refs import DNSRECORDS, ObjectRef

WEB = ObjectRef("runtime", DNSRECORDS.id, "shop", "web")
KEY = subjects.key(WEB)
HEADERS = {OPERATION: "ADDED", UID: "u-1", VERSION: "1"}


async def test_a_change_passes_from_role_to_role(roles: RoleServer, caplog: pytest.LogCaptureFixture) -> None:
    async with (
        connected(roles.access("watcher")) as watcher,
        connected(roles.access("worker")) as worker,
        connected(roles.access("patcher")) as patcher,
    ):
        await streams.ensure(watcher)
        written = Patching(patcher)
        async with running(
            Router(worker, Queue(worker, "dnsrecord"), Everything()).run(),
            Pool(worker, "dnsrecord", Reporting(worker)).run(),
            Pool(patcher, intents.PATCH, written).run(),
        ):
            await watcher.publish(subjects.seen(WEB), b"{}", HEADERS)
            await written.done.wait()

    assert written.outcome == {"lastOperation": {"state": "Succeeded"}}
    assert complaints(caplog) == []


async def test_a_watcher_may_do_all_that_it_does(roles: RoleServer, caplog: pytest.LogCaptureFixture) -> None:
    async with connected(roles.access("watcher")) as bus, presence.answering(bus, dict):
        assert await streams.ensure(bus, 1) != []
        assert await streams.ensure(bus, 1) == []
        await bus.publish(subjects.seen(WEB), b"{}", HEADERS)
        found = [s.subject async for s in consumers.snapshot(bus, streams.OBJECTS, ["object.>"])]
        await bus.purge(streams.OBJECTS, subjects.seen(WEB))
        await hold_a_lease(bus, "watch.runtime.namespaces", "watch")
        await know_the_clusters(bus)

    assert found == [subjects.seen(WEB)]
    assert complaints(caplog) == []


@pytest.mark.parametrize(
    ("role", "pool"),
    [("worker", "dnsrecord"), ("worker", "loadbalancer"), ("patcher", "patch")],
)
async def test_a_pool_may_do_all_that_it_does(
    roles: RoleServer, role: Role, pool: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with connected(roles.access("watcher")) as watcher:
        await streams.ensure(watcher)
    described = {"role": "work", "process": "host/1", presence.RANKED: True}
    async with connected(roles.access(role)) as bus, presence.answering(bus, lambda: described):
        handler = SecondThoughts()
        queue = Queue(bus, pool)
        async with running(
            Pool(bus, pool, handler).run(),
            Router(bus, queue, Everything()).run() if role == "worker" else run_due(bus, queue),
        ):
            await queue.wish(KEY, Wish(reason=Reason.EVENT))
            await handler.twice.wait()
        await queue.sweep(0)
        await bus.last(streams.LATER, subjects.later(pool, KEY))
        await intents.forget(bus, KEY, "u-1")
        await bus.delete(streams.INTENTS, 1)
        await hold_a_lease(bus, f"sweep.{pool}", "work" if role == "worker" else "patch")
        await know_the_clusters(bus)
        if role == "worker":
            await hold_a_lease(bus, "join", "work")
            await consumers.ensure(bus, queue.item_consumer(10), ranked=True)
            await Registry(bus).exchange("shoot", None, Member(id="shoot"))

    assert handler.attempts == [0, 1]
    assert complaints(caplog) == []


async def test_only_workers_answer_a_worker_and_nobody_else_is_waited_for(
    roles: RoleServer, caplog: pytest.LogCaptureFixture
) -> None:
    worker = {"role": "work", "process": "host/work", presence.RANKED: True}
    async with contextlib.AsyncExitStack() as stack:
        others: tuple[Role, ...] = ("watcher", "patcher", "edge", "admit")
        buses = [await stack.enter_async_context(connected(roles.access(role))) for role in others]
        await streams.ensure(buses[0])
        for role, other in zip(("watch", "patch", "edge", "admit"), buses, strict=True):
            described = {"role": role, "process": f"host/{role}"}
            await stack.enter_async_context(presence.answering(other, described.copy))
            await other.publish(liveness.subject(f"{role}.0"), f"host/{role}".encode())
        bus = await stack.enter_async_context(connected(roles.access("worker")))
        await stack.enter_async_context(presence.answering(bus, worker.copy))
        assert await presence.living(bus, presence.TAKING) == set()
        assert await presence.processes(bus, presence.TAKING) == [worker]
        for other in buses:
            await other.client.flush()  # a refusal would have come by now
    assert complaints(caplog) == []


async def test_the_operator_sees_and_steers(roles: RoleServer, caplog: pytest.LogCaptureFixture) -> None:
    async with (
        connected(roles.access("watcher")) as watcher,
        presence.answering(watcher, lambda: {"role": "watch", "process": "host/1"}),
        connected(roles.access("operator")) as bus,
    ):
        await streams.ensure(bus)
        await bus.publish(subjects.seen(WEB), b"{}", HEADERS)
        await Queue(bus, "dnsrecord").wish(KEY, Wish(reason=Reason.EVENT))
        registry = Registry(bus)
        await registry.join(Member(id="shoot"))
        await registry.leave("shoot")
        answered = await presence.processes(bus)
        told = {
            name: [s.subject async for s in consumers.snapshot(bus, name, [f"{first}.>"])]
            for name, first in (("OBJECTS", "object"), ("TRIGGERS", "trigger"), ("JOURNAL", "run"))
        }
        await bus.purge(streams.OBJECTS, "object.>")
        await bus.api("INFO")

    assert answered == [{"role": "watch", "process": "host/1"}]
    assert told == {
        "OBJECTS": [subjects.seen(WEB)],
        "TRIGGERS": [subjects.wish("dnsrecord", KEY)],
        "JOURNAL": [],
    }
    assert complaints(caplog) == []


async def hold_a_lease(bus: Bus, name: str, role: str) -> None:
    leases = Leases(bus, "me", role)
    held = asyncio.Event()

    async def act() -> None:
        held.set()
        await asyncio.Event().wait()

    async with running(leases.run(), leases.while_held(name, act)):
        await held.wait()


async def know_the_clusters(bus: Bus) -> None:
    registry = Registry(bus)
    async with running(registry.run()):
        await registry.complete.wait()


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno >= logging.WARNING]


class Everything:
    """An interest in every DNSRecord."""

    kinds: tuple[str, ...] = (DNSRECORDS.id,)
    owned: tuple[str, ...] = ()

    async def keys_for(self, change: Announcement, before: PreviousVersion) -> list[str]:
        await before.object()
        return [subjects.without("object", change.stored.subject)]

    def unfinished(self, object: Object) -> bool:
        return False


class Reporting:
    """A run that reports success."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def handle(self, item: Item) -> Outcome:
        before = await intents.last(self._bus, item.key)
        intent = StatusIntent(uid="u-1", patch={"lastOperation": {"state": "Succeeded"}})
        await intents.report(self._bus, item.key, intent, before.sequence)
        return Done()

    async def quarantine(self, item: Item) -> None: ...


class Patching:
    """A patcher that keeps what it should have written."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.done = asyncio.Event()
        self.outcome: object = None

    async def handle(self, item: Item) -> Outcome:
        reported = await intents.last(self._bus, item.key)
        assert reported.intent
        self.outcome = reported.intent.patch
        await intents.forget(self._bus, item.key, reported.intent.uid)
        self.done.set()
        return Done("written")

    async def quarantine(self, item: Item) -> None: ...


class SecondThoughts:
    """A run that wants another one, later."""

    def __init__(self) -> None:
        self.attempts: list[int] = []
        self.twice = asyncio.Event()

    async def handle(self, item: Item) -> Outcome:
        self.attempts.append(item.wish.attempt)
        if item.wish.attempt:
            self.twice.set()
            return Done()
        return Failed("", RequeueAfter(Wish(reason=Reason.RETRY, attempt=1), 0.01))

    async def quarantine(self, item: Item) -> None: ...
