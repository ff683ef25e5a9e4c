from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from typing import get_args

import pytest

from bus import consumers, intents, presence, queries, streams, subjects
from bus.connection import Access, Bus, connected
from bus.leases import Leases
from bus.messages import OPERATION, UID, VERSION, Announcement, Reason, Result, StatusIntent, Wish
from bus.permissions import Role, users
from bus.pool import Item, Outcome, Pool, RequeueAfter
from bus.queue import Queue
from bus.registry import Member, Registry
from bus.routing import PreviousVersion, Router, run_due
from tests.support import servers
from tests.support.roles import RoleServer, role_server
from tests.support.running import running
from windowbox.errors import Refused, Unreachable
from windowbox.models.objects import Object
from windowbox.models.refs import DNSRECORDS, ObjectRef
from windowbox.sandbox.processes import free_port

WEB = ObjectRef("runtime", DNSRECORDS.id, "shop", "web")
KEY = subjects.key(WEB)
HEADERS = {OPERATION: "ADDED", UID: "u-1", VERSION: "1"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoleServer]:
    """One server for all tests that are only refused."""
    if reason := servers.missing("nats-server"):
        pytest.skip(reason)
    with role_server(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture
async def errors() -> AsyncIterator[asyncio.Queue[str]]:
    """What is logged as an error."""
    queue: asyncio.Queue[str] = asyncio.Queue()
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: queue.put_nowait(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    yield queue
    logging.getLogger().removeHandler(handler)


FORBIDDEN: dict[Role, list[str]] = {
    "watcher": [
        "work.dnsrecord.x",
        "work.patch.x",
        "work.loadbalancer.x",
        "run.loadbalancer.x",
        "settings.x",
        "$KV.addresses.address.x",
        "$KV.edges.x",
        "$KV.leases.edge",
        "windowbox.edge",
        "trigger.dnsrecord.x",
        "later.dnsrecord.x",
        "due.dnsrecord.x",
        "intent.x",
        "run.dnsrecord.x",
        "$KV.clusters.x",
        "$KV.leases.sweep.dnsrecord",
        "$JS.API.STREAM.CREATE.FOREIGN",
        "$JS.API.STREAM.DELETE.OBJECTS",
        "$JS.API.STREAM.PURGE.WORK",
        "$JS.API.STREAM.MSG.DELETE.TRIGGERS",
        "$JS.API.CONSUMER.CREATE.OBJECTS.route-dnsrecord",
        "$JS.API.CONSUMER.DELETE.OBJECTS.route-dnsrecord",
        "$JS.API.CONSUMER.MSG.NEXT.WORK.pool-dnsrecord",
        "$JS.ACK.WORK.pool-dnsrecord.1.1.1.1.0",
    ],
    "worker": [
        "object.x",
        "run.patch.x",
        "windowbox.edge",
        "$JS.API.STREAM.PURGE.KV_addresses",
        "$JS.API.STREAM.DELETE.KV_edges",
        "$JS.API.CONSUMER.DELETE.WORK.pool-loadbalancer",
        "later.patch.x",
        "due.dnsrecord.x",
        "$KV.leases.watch.runtime.x",
        "$JS.API.STREAM.CREATE.OBJECTS",
        "$JS.API.STREAM.UPDATE.OBJECTS",
        "$JS.API.STREAM.DELETE.OBJECTS",
        "$JS.API.STREAM.PURGE.WORK",
        "$JS.API.STREAM.MSG.DELETE.OBJECTS",
        "$JS.API.STREAM.MSG.DELETE.JOURNAL",
        "$JS.API.CONSUMER.CREATE.JOURNAL.reader",
        "$JS.API.CONSUMER.MSG.NEXT.WORK.pool-patch",
        "$JS.ACK.WORK.pool-patch.1.1.1.1.0",
    ],
    "edge": [
        "object.x",
        "intent.x",
        "settings.x",
        "work.dnsrecord.x",
        "work.patch.x",
        "trigger.dnsrecord.x",
        "run.loadbalancer.x",
        "later.loadbalancer.x",
        "$KV.addresses.address.x",
        "$KV.clusters.x",
        "$KV.leases.addresses",
        "$KV.leases.sweep.loadbalancer",
        "windowbox.edge",
        "$JS.API.STREAM.CREATE.OBJECTS",
        "$JS.API.STREAM.PURGE.KV_edges",
        "$JS.API.STREAM.MSG.DELETE.TRIGGERS",
        "$JS.API.CONSUMER.CREATE.JOURNAL.reader",
        "$JS.API.CONSUMER.CREATE.INTENTS.reader",
        "$JS.API.CONSUMER.CREATE.OBJECTS.route-loadbalancer",
        "$JS.API.CONSUMER.MSG.NEXT.WORK.pool-loadbalancer",
    ],
    "patcher": [
        "object.x",
        "intent.x",
        "work.dnsrecord.x",
        "work.loadbalancer.x",
        "$KV.addresses.address.x",
        "$KV.edges.x",
        "$KV.leases.edge",
        "windowbox.edge",
        "trigger.dnsrecord.x",
        "run.dnsrecord.x",
        "$KV.clusters.x",
        "$KV.leases.sweep.dnsrecord",
        "$JS.API.STREAM.CREATE.INTENTS",
        "$JS.API.STREAM.UPDATE.INTENTS",
        "$JS.API.STREAM.DELETE.INTENTS",
        "$JS.API.STREAM.MSG.DELETE.OBJECTS",
        "$JS.API.STREAM.MSG.DELETE.WORK",
        "$JS.API.CONSUMER.CREATE.OBJECTS.reader",
        "$JS.API.CONSUMER.MSG.NEXT.WORK.pool-dnsrecord",
        "$JS.API.DIRECT.GET.OBJECTS.object.x",
    ],
    "operator": [
        "intent.x",
        "run.dnsrecord.x",
        "run.loadbalancer.x",
        "settings.x",
        "$KV.addresses.address.x",
        "$KV.edges.x",
        "$KV.leases.edge",
        "start.dnsrecord.x",
        "later.dnsrecord.x",
        "due.dnsrecord.x",
        "$KV.leases.watch.runtime.x",
        "$JS.ACK.WORK.pool-dnsrecord.1.1.1.1.0",
    ],
}


@pytest.mark.parametrize(
    ("role", "subject"), [(role, subject) for role, forbidden in FORBIDDEN.items() for subject in forbidden]
)
async def test_a_role_cannot_publish_what_is_not_its_part(
    shared: RoleServer, role: Role, subject: str
) -> None:
    async with shared.speaking(role) as speaker:
        await speaker.client.publish(subject, b"")

        assert f'for publish to "{subject.lower()}"' in await speaker.refusal()


STREAMS = [str(stream["name"]) for stream in streams.streams(1)]
READ_AS_A_WHOLE: dict[Role, set[str]] = {
    "watcher": {"OBJECTS", "KV_clusters", "KV_leases"},
    "worker": {"OBJECTS", "TRIGGERS", "LATER", "KV_addresses", "KV_clusters", "KV_edges", "KV_leases"},
    "edge": {"OBJECTS", "KV_addresses", "KV_clusters", "KV_edges", "KV_leases"},
    "patcher": {"TRIGGERS", "LATER", "KV_clusters", "KV_leases"},
    "admit": {"KV_clusters", "KV_leases"},
}
"""By consumers. Of other streams, a role reads only the subjects that are its part."""
BY_SEQUENCE = {("worker", "OBJECTS"), ("worker", "TRIGGERS"), ("patcher", "TRIGGERS")}
"""Who gets single messages by sequence, which names no subject: parts of what the role reads as a whole."""


@pytest.mark.parametrize("role", READ_AS_A_WHOLE)
async def test_a_role_cannot_read_streams_that_are_not_its_part(shared: RoleServer, role: Role) -> None:
    closed = [stream for stream in STREAMS if stream not in READ_AS_A_WHOLE[role]]
    forbidden = [f"$JS.API.STREAM.MSG.GET.{stream}" for stream in STREAMS]
    forbidden += [f"$JS.API.DIRECT.GET.{stream}" for stream in STREAMS if (role, stream) not in BY_SEQUENCE]
    for stream in closed:
        forbidden += [
            f"$JS.API.DIRECT.GET.{stream}.foreign.subject",
            f"$JS.API.CONSUMER.CREATE.{stream}",
            f"$JS.API.CONSUMER.CREATE.{stream}.reader",
            f"$JS.API.CONSUMER.CREATE.{stream}.reader.foreign.subject",
            f"$JS.API.CONSUMER.DURABLE.CREATE.{stream}.reader",
            f"$JS.API.CONSUMER.MSG.NEXT.{stream}.reader",
            f"$JS.API.STREAM.SNAPSHOT.{stream}",
        ]
    async with shared.speaking(role) as speaker:
        for subject in forbidden:
            await speaker.client.publish(subject, b"")
            assert f'for publish to "{subject.lower()}"' in await speaker.refusal()


@pytest.mark.parametrize(
    ("clustered", "who"), [(False, {"operator"}), (True, {*READ_AS_A_WHOLE, "operator"})]
)
def test_leaders_are_asked_only_where_there_are_several_servers(clustered: bool, who: set[str]) -> None:
    found = users(dict.fromkeys(get_args(Role), "secret"), clustered=clustered)
    rights = {str(user["user"]): str(user["permissions"]) for user in found}
    assert {role for role, may in rights.items() if "STREAM.MSG.GET" in may or "$JS.API.>" in may} == who


@pytest.mark.parametrize("role", ["worker", "patcher"])
async def test_only_watchers_and_the_operator_may_purge_objects(shared: RoleServer, role: Role) -> None:
    async with shared.speaking(role) as speaker:
        await speaker.client.publish("$JS.API.STREAM.PURGE.OBJECTS", b"")

        assert 'for publish to "$js.api.stream.purge.objects"' in await speaker.refusal()


@pytest.mark.parametrize("role", ["watcher", "worker", "patcher"])
@pytest.mark.parametrize(
    "subject", [">", "object.>", "work.>", "intent.>", "$JS.API.>", "$KV.>", "_INBOX.>", "_INBOX.operator.>"]
)
async def test_a_process_cannot_listen_to_what_is_meant_for_others(
    shared: RoleServer, role: Role, subject: str
) -> None:
    async with shared.speaking(role) as speaker:
        await speaker.client.subscribe(subject)

        assert f'for subscription to "{subject.lower()}"' in await speaker.refusal()


@pytest.mark.parametrize("role", ["watcher", "patcher"])
async def test_only_workers_may_answer_for_an_edge(shared: RoleServer, role: Role) -> None:
    async with shared.speaking(role) as speaker:
        await speaker.client.subscribe(queries.EDGE)

        assert f'for subscription to "{queries.EDGE}"' in await speaker.refusal()


@pytest.mark.parametrize("role", get_args(Role))
async def test_nobody_enters_without_the_password(shared: RoleServer, role: Role) -> None:
    with pytest.raises(Refused, match="check its password"):
        async with connected(Access(shared.url, role, "a guess")):
            pass


async def test_who_finds_no_bus_is_told_so_in_the_end() -> None:
    nobody = f"nats://127.0.0.1:{free_port()}"

    with pytest.raises(Unreachable, match=f"the bus at {nobody} cannot be reached"):
        async with connected(Access(nobody), patience=0.1):
            pass


async def test_what_is_forbidden_is_told_with_subject_and_remedy(
    shared: RoleServer, errors: asyncio.Queue[str]
) -> None:
    async with connected(shared.access("patcher")) as bus:
        await bus.client.publish("object.x", b"")

        told = await errors.get()

    assert "forbids user 'patcher' to publish to object.x: use the user made for this role" in told


async def test_a_subscription_that_is_forbidden_is_told_too(
    shared: RoleServer, errors: asyncio.Queue[str]
) -> None:
    async with connected(shared.access("worker")) as bus:
        await bus.client.subscribe("object.>")

        told = await errors.get()

    assert "forbids user 'worker' to subscribe to object.>" in told


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
        await hold_a_lease(bus, "watch.runtime.namespaces")
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
    async with connected(roles.access(role)) as bus, presence.answering(bus, dict):
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
        await hold_a_lease(bus, f"sweep.{pool}")
        await know_the_clusters(bus)
        if role == "worker":
            await hold_a_lease(bus, "join")
            await Registry(bus).exchange("shoot", None, Member(id="shoot"))

    assert handler.attempts == [0, 1]
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


async def hold_a_lease(bus: Bus, name: str) -> None:
    leases = Leases(bus, "me")
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
        return Outcome(Result.SUCCEEDED)

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
        return Outcome(Result.WRITTEN)

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
            return Outcome(Result.SUCCEEDED)
        return Outcome(Result.AGAIN, RequeueAfter(Wish(reason=Reason.RETRY, attempt=1), 0.01))

    async def quarantine(self, item: Item) -> None: ...
