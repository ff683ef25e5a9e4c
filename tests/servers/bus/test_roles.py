"""Roles have all the rights on the bus that they need."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
from collections.abc import Iterator
from typing import Any, get_args

import orjson
import pytest

from bus import intents, queries, streams, subjects
from bus.clusters.registry import Member, Registry
from bus.leases import liveness, presence
from bus.leases.leases import Leases
from bus.messages import OPERATION, UID, VERSION, Announcement, Reason, StatusIntent, Wish
from bus.outcomes import Done, Failed, Outcome, RequeueAfter
from bus.permissions import Role, users
from bus.transport import answers, consumers
from bus.transport.buckets import Bucket
from bus.transport.connection import ApiError, Bus, connected
from bus.transport.consumers import Consumer
from bus.transport.pull import Pull
from bus.workqueue.forgetting import ReportSweep
from bus.workqueue.pool import Item, Pool
from bus.workqueue.queue import Queue
from bus.workqueue.routing import PreviousVersion, Router, run_due
from clouds.frame.inventory import CloudObject
from clouds.frame.operator.faults import SetFault
from commands.clouds import inventories
from sandbox.processes import free_port
from tests.servers.bus.handlers import Doing
from tests.support import servers
from tests.support.natsserver import ensured
from tests.support.roles import RoleServer, role_server
from tests.support.running import eventually, running, soon
from windowbox.errors import Refused, TransientError, Unreachable
from windowbox.models.objects import Object
from windowbox.models.refs import DNSRECORDS, ObjectRef
from windowbox.settings.bussettings import Access
from workers.core.cloudaccounts import CloudAccounts
from workers.core.cloudfaults import CloudFaults
from workers.core.recorder import Unrecorded

WEB = ObjectRef("runtime", DNSRECORDS.id, "shop", "web")
KEY = subjects.key(WEB)
NOWHERE: Any = None
HEADERS = {OPERATION: "ADDED", UID: "u-1", VERSION: "1"}


@pytest.fixture
def granted(roles: RoleServer, caplog: pytest.LogCaptureFixture) -> Iterator[RoleServer]:
    """A server with a user for each role; none may be refused anything."""
    yield roles
    assert all(record.levelno < logging.WARNING for record in caplog.get_records("call")), caplog.text


async def test_a_change_passes_from_role_to_role(granted: RoleServer) -> None:
    async with (
        connected(granted.access("watcher")) as watcher,
        connected(granted.access("worker")) as worker,
        connected(granted.access("patcher")) as patcher,
    ):
        status, written = {"lastOperation": {"state": "Succeeded"}}, asyncio.Queue[object]()

        async def report(item: Item) -> Outcome:
            before = await intents.last(worker, item.key)
            await intents.report(worker, item.key, StatusIntent(uid="u-1", patch=status), before.sequence)
            return Done()

        async def take() -> None:
            reports = Consumer(streams.INTENTS, intents.REPORTS, (subjects.intent(">"),), 10)
            async for batch in Pull(patcher, reports, 8).deliveries():
                for delivery in batch:
                    await intents.remind(patcher, subjects.without("intent", delivery.subject))
                    await delivery.settle()

        async def write(item: Item) -> Outcome:
            reported = (await intents.last(patcher, item.key)).intent
            assert reported
            await intents.forget(patcher, item.key, reported.uid)
            written.put_nowait(reported.patch)
            return Done("written")

        await streams.ensure(watcher)
        async with running(
            Router(worker, Queue(worker, "dnsrecord"), Everything()).run(),
            Pool(worker, "dnsrecord", Doing(report)).run(),
            take(),
            Pool(patcher, intents.PATCH, Doing(write)).run(),
        ):
            await watcher.publish(subjects.seen(WEB), b"{}", HEADERS)
            assert await soon(written.get()) == status


async def test_a_watcher_may_do_all_that_it_does(granted: RoleServer) -> None:
    async with connected(granted.access("watcher")) as bus, presence.answering(bus, dict):
        assert await streams.ensure(bus, 1) != []
        assert await streams.ensure(bus, 1) == []
        await bus.publish(subjects.seen(WEB), b"{}", HEADERS)
        found = [s.subject async for s in consumers.snapshot(bus, streams.OBJECTS, ["object.>"])]
        await bus.purge(streams.OBJECTS, subjects.seen(WEB))
        await bus.purge(streams.INTENTS, subjects.reports_of("left"))
        await hold_a_lease(bus, "watch.runtime.namespaces", "watch")
        async with running((registry := Registry(bus)).run()):
            await registry.complete.wait()
    assert found == [subjects.seen(WEB)]


@pytest.mark.parametrize(
    ("role", "pool"),
    [("worker", "dnsrecord"), ("worker", "loadbalancer"), ("patcher", "patch")],
)
async def test_a_pool_may_do_all_that_it_does(granted: RoleServer, role: Role, pool: str) -> None:
    async with connected(granted.access("watcher")) as watcher:
        await streams.ensure(watcher)
    described = {"role": "work", "process": "host/1", presence.RANKED: True}
    async with connected(granted.access(role)) as bus, presence.answering(bus, lambda: described):
        queue, attempts = Queue(bus, pool), asyncio.Queue[int]()

        async def retry_once(item: Item) -> Outcome:
            attempts.put_nowait(item.wish.attempt)
            again = RequeueAfter(Wish(reason=Reason.RETRY, attempt=1), 0.01)
            return Done() if item.wish.attempt else Failed("", again)

        async with running(
            Pool(bus, pool, Doing(retry_once)).run(),
            Router(bus, queue, Everything()).run() if role == "worker" else run_due(bus, queue),
        ):
            await queue.wish(KEY, Wish(reason=Reason.EVENT))
            assert [await soon(attempts.get()) for _ in range(2)] == [0, 1]
        await queue.sweep(0)
        await bus.last(streams.LATER, subjects.later(pool, KEY))
        await intents.forget(bus, KEY, "u-1")
        await bus.delete(streams.INTENTS, 1)
        await hold_a_lease(bus, f"sweep.{pool}", "work" if role == "worker" else "patch")
        async with running((registry := Registry(bus)).run()):
            await registry.complete.wait()
        if role == "worker":
            await intents.report(bus, KEY, StatusIntent(uid="u-1", patch={"a": 1}), 0)
            await hold_a_lease(bus, "join", "work")
            await consumers.ensure(bus, queue.item_consumer(10), ranked=True)
            sweep = ReportSweep(bus, DNSRECORDS.id)
            for _ in range(2):
                await sweep.step()
            await Registry(bus).exchange("shoot", None, Member(id="shoot"))


async def test_a_worker_waits_for_answers_of_workers_only(granted: RoleServer) -> None:
    worker = {"role": "work", "process": "host/work", presence.RANKED: True}
    async with contextlib.AsyncExitStack() as stack:
        others: tuple[Role, ...] = ("watcher", "patcher", "edge", "admit")
        buses = [await stack.enter_async_context(connected(granted.access(role))) for role in others]
        await streams.ensure(buses[0])
        for role, other in zip(("watch", "patch", "edge", "admit"), buses, strict=True):
            described = {"role": role, "process": f"host/{role}"}
            await stack.enter_async_context(presence.answering(other, described.copy))
            await other.publish(liveness.subject(f"{role}.0"), f"host/{role}".encode())
        bus = await stack.enter_async_context(connected(granted.access("worker")))
        await stack.enter_async_context(presence.answering(bus, worker.copy))
        assert await presence.living(bus, presence.TAKING) == set()
        assert await presence.processes(bus, presence.TAKING) == [worker]
        for other in buses:
            await other.client.flush()  # a refusal would have come by now


async def test_the_operator_sees_and_steers(granted: RoleServer) -> None:
    async with (
        connected(granted.access("watcher")) as watcher,
        presence.answering(watcher, lambda: {"role": "watch", "process": "host/1"}),
        connected(granted.access("operator")) as bus,
    ):
        await streams.ensure(bus)
        await bus.publish(subjects.seen(WEB), b"{}", HEADERS)
        await Queue(bus, "dnsrecord").wish(KEY, Wish(reason=Reason.EVENT))
        registry = Registry(bus)
        await registry.join(Member(id="shoot"))
        await registry.leave("shoot")
        account = "aws-012345678901"
        await inventories.add(bus, account, CloudObject("vpc", "vpc-1"))
        await inventories.fail(bus, account, SetFault("quota"))
        await inventories.heal(bus, account, None)
        [existing] = [one.object.id for one in inventories.objects(await inventories.accounts(bus))]
        answered = await presence.processes(bus)
        findings = {
            name: [s.subject async for s in consumers.snapshot(bus, name, [f"{first}.>"])]
            for name, first in (("OBJECTS", "object"), ("TRIGGERS", "trigger"), ("JOURNAL", "run"))
        }
        await bus.purge(streams.OBJECTS, "object.>")
        await bus.api("INFO")

    assert answered == [{"role": "watch", "process": "host/1"}]
    assert existing == "vpc-1"
    assert findings == {
        "OBJECTS": [subjects.seen(WEB)],
        "TRIGGERS": [subjects.wish("dnsrecord", KEY)],
        "JOURNAL": [],
    }


async def hold_a_lease(bus: Bus, name: str, role: str) -> None:
    leases, held = Leases(bus, "me", role), asyncio.Event()

    async def act() -> None:
        held.set()
        await asyncio.Event().wait()

    async with running(leases.run(), leases.while_held(name, act)):
        await held.wait()


class Everything:
    """An interest in every DNSRecord."""

    kinds: tuple[str, ...] = (DNSRECORDS.id,)
    owned: tuple[str, ...] = ()

    async def keys_for(self, change: Announcement, before: PreviousVersion) -> list[str]:
        await before.object()
        return [subjects.without("object", change.stored.subject)]

    def unfinished(self, object: Object) -> bool:
        return False


async def test_the_operator_asks_and_the_worker_answers(granted: RoleServer) -> None:
    async def answer(question: bytes) -> bytes:
        if question == b"fail":
            raise Unreachable("Envoy has just ended")
        return b"all is well with " + question

    async with (
        connected(granted.access("worker")) as worker,
        connected(granted.access("operator")) as operator,
        queries.answering(worker, queries.EDGE, answer),
    ):
        assert await queries.ask(operator, queries.EDGE, b"web") == b"all is well with web"
        with pytest.raises(Unreachable, match="Envoy has just ended"):
            await queries.ask(operator, queries.EDGE, b"fail")


async def test_without_an_owner_a_question_fails_at_once(roles: RoleServer) -> None:
    async with connected(roles.access("operator")) as operator:
        assert await queries.ask(operator, queries.EDGE) is None


async def test_a_worker_counts_faults_of_clouds(granted: RoleServer) -> None:
    async with connected(granted.access("watcher")) as watcher:
        await streams.ensure(watcher)
    async with connected(granted.access("worker")) as bus:
        key, account = "faults.aws-012345678901", "aws-012345678901"
        await Bucket(bus, streams.CLOUDS).put(key, b'{"faults": [{"fault": "quota", "times": 1}]}', 0)
        with pytest.raises(TransientError, match="VpcLimitExceeded"):
            await CloudFaults(bus).check(Unrecorded(), account, "dns", "shoot--a")
        assert [one async for one in CloudAccounts(bus, NOWHERE).estates()] == []


async def test_a_worker_keeps_addresses_and_owns_an_edge(granted: RoleServer) -> None:
    async with connected(granted.access("watcher")) as watcher:
        await streams.ensure(watcher)
    async with connected(granted.access("worker")) as bus:
        for bucket in (Bucket(bus, streams.ADDRESSES), Bucket(bus, streams.EDGES)):
            async with running(bucket.run()):
                await soon(bucket.complete.wait())
                sequence = await bucket.put("a", b"1", 0)
                await bucket.catch_up()
                assert (await bucket.get("a")).value == b"1"
                await bucket.delete("a", sequence)
        await hold_a_lease(bus, "edge", "work")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoleServer]:
    """One server for all tests that are only refused."""
    if reason := servers.missing("nats-server"):
        pytest.skip(reason)
    with role_server(tmp_path_factory.mktemp("nats")) as server:
        yield server


FORBIDDEN: dict[Role, str] = {
    "runner": """
        review.x $KV.leases.admit $KV.leases.process.admit.x $JS.API.STREAM.DELETE.OBJECTS
        $JS.API.STREAM.PURGE.WORK
    """,
    "watcher": """
        windowbox.twins $KV.leases.process.work.x work.dnsrecord.x work.patch.x work.loadbalancer.x
        run.loadbalancer.x settings.x $KV.addresses.address.x $KV.edges.x $KV.leases.edge windowbox.edge
        $KV.clouds.shoots.x
        trigger.dnsrecord.x later.dnsrecord.x due.dnsrecord.x intent.x run.dnsrecord.x $KV.clusters.x
        $KV.leases.sweep.dnsrecord $JS.ACK.WORK.pool-dnsrecord.1.1.1.1.0 $JS.API.STREAM.CREATE.FOREIGN
        $JS.API.STREAM.DELETE.OBJECTS $JS.API.STREAM.PURGE.WORK $JS.API.STREAM.MSG.DELETE.TRIGGERS
        $JS.API.CONSUMER.CREATE.OBJECTS.route-dnsrecord $JS.API.CONSUMER.DELETE.OBJECTS.route-dnsrecord
        $JS.API.CONSUMER.MSG.NEXT.WORK.pool-dnsrecord
    """,
    "worker": """
        $KV.leases.process.edge.x object.x run.patch.x windowbox.edge later.patch.x due.dnsrecord.x
        $KV.leases.watch.runtime.x $JS.ACK.WORK.pool-patch.1.1.1.1.0 $JS.API.STREAM.PURGE.KV_addresses
        $JS.API.STREAM.DELETE.KV_edges $JS.API.CONSUMER.DELETE.WORK.pool-loadbalancer
        $JS.API.STREAM.CREATE.OBJECTS $JS.API.STREAM.UPDATE.OBJECTS $JS.API.STREAM.DELETE.OBJECTS
        $JS.API.STREAM.PURGE.OBJECTS
        $JS.API.STREAM.PURGE.WORK $JS.API.STREAM.MSG.DELETE.OBJECTS $JS.API.STREAM.MSG.DELETE.JOURNAL
        $JS.API.CONSUMER.CREATE.JOURNAL.reader $JS.API.CONSUMER.MSG.NEXT.WORK.pool-patch
    """,
    "edge": """
        windowbox.twins $KV.leases.process.work.x object.x intent.x settings.x work.dnsrecord.x work.patch.x
        trigger.dnsrecord.x run.loadbalancer.x later.loadbalancer.x $KV.addresses.address.x $KV.clusters.x
        $KV.clouds.shoots.x
        $KV.leases.addresses $KV.leases.sweep.loadbalancer windowbox.edge $JS.API.STREAM.CREATE.OBJECTS
        $JS.API.STREAM.PURGE.KV_edges $JS.API.STREAM.MSG.DELETE.TRIGGERS
        $JS.API.CONSUMER.CREATE.JOURNAL.reader $JS.API.CONSUMER.CREATE.INTENTS.reader
        $JS.API.CONSUMER.CREATE.OBJECTS.route-loadbalancer $JS.API.CONSUMER.MSG.NEXT.WORK.pool-loadbalancer
    """,
    "patcher": """
        windowbox.twins $KV.leases.process.work.x object.x intent.x work.dnsrecord.x work.loadbalancer.x
        $KV.addresses.address.x $KV.edges.x $KV.leases.edge windowbox.edge trigger.dnsrecord.x
        $KV.clouds.shoots.x run.dnsrecord.x $KV.clusters.x $KV.leases.sweep.dnsrecord
        $JS.API.STREAM.CREATE.INTENTS $JS.API.STREAM.UPDATE.INTENTS $JS.API.STREAM.DELETE.INTENTS
        $JS.API.STREAM.PURGE.OBJECTS $JS.API.STREAM.MSG.DELETE.OBJECTS
        $JS.API.STREAM.MSG.DELETE.WORK $JS.API.CONSUMER.CREATE.OBJECTS.reader
        $JS.API.CONSUMER.MSG.NEXT.WORK.pool-dnsrecord $JS.API.DIRECT.GET.OBJECTS.object.x
    """,
    "operator": """
        $KV.leases.process.work.x intent.x run.dnsrecord.x run.loadbalancer.x settings.x
        $KV.addresses.address.x $KV.edges.x $KV.leases.edge start.dnsrecord.x later.dnsrecord.x
        due.dnsrecord.x $KV.leases.watch.runtime.x $JS.ACK.WORK.pool-dnsrecord.1.1.1.1.0
    """,
}


@pytest.mark.parametrize("role", FORBIDDEN)
async def test_a_role_cannot_publish_what_is_not_its_part(shared: RoleServer, role: Role) -> None:
    async with shared.speaking(role) as speaker:
        for subject in FORBIDDEN[role].split():
            await speaker.client.publish(subject, b"")
            assert f'for publish to "{subject.lower()}"' in await speaker.refusal()


STREAMS = [str(stream["name"]) for stream in streams.streams(1)]
BUCKETS = ("KV_addresses", "KV_clouds", "KV_clusters", "KV_edges", "KV_leases")
READ_AS_A_WHOLE: dict[Role, set[str]] = {
    "watcher": {"OBJECTS", "KV_clusters", "KV_leases"},
    "worker": {"OBJECTS", "TRIGGERS", "LATER", *BUCKETS},
    "runner": {"OBJECTS", "TRIGGERS", "LATER", *BUCKETS},
    "edge": {"OBJECTS", "KV_addresses", "KV_clusters", "KV_edges", "KV_leases"},
    "patcher": {"TRIGGERS", "LATER", "KV_clusters", "KV_leases"},
    "admit": {"KV_clusters", "KV_leases"},
    "ui": {"OBJECTS", "TRIGGERS", "LATER", "JOURNAL", "REVIEWS", "KV_clusters", "KV_edges", "KV_leases"},
}
"""By consumers. Of other streams, a role reads only the subjects that are its part."""
BY_SEQUENCE = {
    *(("watcher", "OBJECTS"), ("worker", "OBJECTS"), ("runner", "OBJECTS")),
    *(("patcher", "TRIGGERS"), ("worker", "TRIGGERS"), ("runner", "TRIGGERS")),
    ("ui", "TRIGGERS"),
}
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


@pytest.mark.parametrize("role", ["watcher", "worker", "patcher"])
async def test_a_process_cannot_subscribe_to_messages_for_others(shared: RoleServer, role: Role) -> None:
    closed = [">", "object.>", "work.>", "intent.>", "$JS.API.>", "$KV.>", "_INBOX.>", "_INBOX.operator.>"]
    async with shared.speaking(role) as speaker:
        for subject in [*closed, *([] if role == "worker" else [queries.EDGE])]:
            await speaker.client.subscribe(subject)
            assert f'for subscription to "{subject.lower()}"' in await speaker.refusal()


@pytest.mark.parametrize("role", get_args(Role))
async def test_a_wrong_password_is_refused(shared: RoleServer, role: Role) -> None:
    with pytest.raises(Refused, match="check its password"):
        async with connected(Access(shared.url, role, "a guess")):
            pass


async def test_connecting_to_no_bus_is_given_up() -> None:
    nobody = f"nats://127.0.0.1:{free_port()}"
    with pytest.raises(Unreachable, match=f"the bus at {nobody} cannot be reached"):
        async with connected(Access(nobody), patience=0.1):
            pass


async def test_a_refusal_names_the_subject_and_the_remedy(
    shared: RoleServer, caplog: pytest.LogCaptureFixture
) -> None:
    forbids, remedy = "forbids user 'patcher' to", "use the user made for this role"
    async with connected(shared.access("patcher")) as bus:
        await bus.client.publish("object.x", b"")
        await eventually(lambda: f"{forbids} publish to object.x: {remedy}" in caplog.text)
        await bus.client.subscribe("object.>")
        await eventually(lambda: f"{forbids} subscribe to object.>" in caplog.text)


async def forged(server: RoleServer, subject: str) -> None:
    """A patcher has a message of its own published under a subject of others: as answer to a direct get."""
    async with connected(server.access("patcher")) as patcher:
        wish = await patcher.publish("trigger.patch.evil", b'{"uid": "evil", "patch": {}}', HEADERS)
        asked = f"$JS.API.DIRECT.GET.{streams.TRIGGERS}"
        await patcher.client.publish(asked, orjson.dumps({"seq": wish}), reply=subject)
        await patcher.client.flush()


async def test_an_answer_stored_under_a_foreign_subject_is_ignored(roles: RoleServer) -> None:
    async with connected(roles.access("operator")) as operator, connected(roles.access("worker")) as worker:
        await ensured(operator)
        addresses = Bucket(worker, streams.ADDRESSES)
        honest = StatusIntent(uid="u-1", patch={})
        await intents.report(worker, KEY, honest, 0)
        for subject in (subjects.intent(KEY), subjects.entry(streams.ADDRESSES, "x"), subjects.seen(WEB)):
            await forged(roles, subject)
        findings = await eventually(lambda: stored(operator, streams.OBJECTS, subjects.seen(WEB)))
        assert b"evil" in base64.b64decode(findings["data"])
        assert answers.from_leader(findings).data == b""  # so it is read where there are several servers

        assert (await intents.last(worker, KEY)).intent is None
        assert (await addresses.get("x")).value is None
        assert await worker.last(streams.OBJECTS, subjects.seen(WEB)) is None
        assert [one async for one in consumers.snapshot(worker, streams.OBJECTS, ["object.>"])] == []
        await intents.report(worker, KEY, honest, (await intents.last(worker, KEY)).sequence)
        assert (await intents.last(worker, KEY)).intent == honest
        assert await addresses.put("x", b"honest", (await addresses.get("x")).sequence)
        assert (await addresses.get("x")).value == b"honest"


async def stored(operator: Bus, stream: str, subject: str) -> dict[str, Any]:
    """What the server tells of the last message of a subject; nothing if there is none."""
    try:
        found = await operator.api(f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject})
    except ApiError:
        return {}
    return dict(found["message"])


async def test_consumers_deliver_to_no_stream(roles: RoleServer) -> None:
    """Whoever makes a consumer names where it delivers to, or asks it from there: streams do not listen."""
    async with connected(roles.access("operator")) as operator, connected(roles.access("patcher")) as patcher:
        await ensured(operator)
        await patcher.publish("trigger.patch.evil", b"{}")
        for name, config in (
            ("push", {"deliver_subject": "intent.push", "ack_policy": "none"}),
            ("pull", {}),
        ):
            made = {"name": name, "filter_subject": "trigger.patch.evil", "ack_policy": "explicit", **config}
            request = {"stream_name": streams.TRIGGERS, "config": made}
            await patcher.api(f"CONSUMER.CREATE.{streams.TRIGGERS}.{name}", request)
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{streams.TRIGGERS}.pull"
        await patcher.client.publish(subject, b"1", reply="intent.pull")
        await patcher.client.flush()
        await forged(roles, "intent.direct")
        await eventually(lambda: stored(operator, streams.INTENTS, "intent.direct"))

        assert (await operator.api(f"STREAM.INFO.{streams.INTENTS}"))["state"]["messages"] == 1
