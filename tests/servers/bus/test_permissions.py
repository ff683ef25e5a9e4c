from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any, get_args

import orjson
import pytest

from bus import intents, queries, streams, subjects
from bus.messages import OPERATION, UID, VERSION, StatusIntent
from bus.permissions import Role, users
from bus.transport import answers, consumers
from bus.transport.buckets import Bucket
from bus.transport.connection import ApiError, Bus, connected
from sandbox.processes import free_port
from tests.support import servers
from tests.support.natsserver import ensured
from tests.support.roles import RoleServer, role_server
from tests.support.running import eventually
from windowbox.errors import Refused, Unreachable
from windowbox.models.refs import DNSRECORDS, ObjectRef
from windowbox.settings.bussettings import Access

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
    "runner": [
        "review.x",
        "$KV.leases.admit",
        "$KV.leases.process.admit.x",
        "$JS.API.STREAM.DELETE.OBJECTS",
        "$JS.API.STREAM.PURGE.WORK",
    ],
    "watcher": [
        "windowbox.twins",
        "$KV.leases.process.work.x",
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
        "$KV.leases.process.edge.x",
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
        "windowbox.twins",
        "$KV.leases.process.work.x",
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
        "windowbox.twins",
        "$KV.leases.process.work.x",
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
        "$KV.leases.process.work.x",
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
    "runner": {"OBJECTS", "TRIGGERS", "LATER", "KV_addresses", "KV_clusters", "KV_edges", "KV_leases"},
    "edge": {"OBJECTS", "KV_addresses", "KV_clusters", "KV_edges", "KV_leases"},
    "patcher": {"TRIGGERS", "LATER", "KV_clusters", "KV_leases"},
    "admit": {"KV_clusters", "KV_leases"},
}
"""By consumers. Of other streams, a role reads only the subjects that are its part."""
BY_SEQUENCE = {
    ("watcher", "OBJECTS"),
    ("worker", "OBJECTS"),
    ("worker", "TRIGGERS"),
    ("patcher", "TRIGGERS"),
    ("runner", "OBJECTS"),
    ("runner", "TRIGGERS"),
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


async def forged(server: RoleServer, subject: str) -> None:
    """A patcher has a message of its own published under a subject of others: as answer to a direct get."""
    async with connected(server.access("patcher")) as patcher:
        wish = await patcher.publish("trigger.patch.evil", b'{"uid": "evil", "patch": {}}', HEADERS)
        asked = f"$JS.API.DIRECT.GET.{streams.TRIGGERS}"
        await patcher.client.publish(asked, orjson.dumps({"seq": wish}), reply=subject)
        await patcher.client.flush()


async def test_an_answer_that_is_stored_under_a_foreign_subject_counts_as_nothing(roles: RoleServer) -> None:
    async with connected(roles.access("operator")) as operator, connected(roles.access("worker")) as worker:
        await ensured(operator)
        addresses = Bucket(worker, streams.ADDRESSES)
        honest = StatusIntent(uid="u-1", patch={})
        await intents.report(worker, KEY, honest, 0)
        for subject in (subjects.intent(KEY), subjects.entry(streams.ADDRESSES, "x"), subjects.seen(WEB)):
            await forged(roles, subject)
        told = await eventually(lambda: stored(operator, streams.OBJECTS, subjects.seen(WEB)))
        assert b"evil" in base64.b64decode(told["data"])
        assert answers.from_leader(told).data == b""  # so it is read where there are several servers

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
