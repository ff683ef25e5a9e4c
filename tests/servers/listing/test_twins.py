"""One worker follows all DNSRecords, and answers the others."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

import pytest

from bus import queries, streams, subjects
from bus.transport import consumers
from bus.transport.connection import Bus, connected
from bus.workqueue.queue import Queue
from tests.e2e import zones
from tests.servers.listing.test_incomplete import Recorder, announce
from tests.support.roles import RoleServer
from tests.support.running import eventually, running
from tests.support.servers import NameServer
from windowbox.clients.nameserver import Nameserver
from windowbox.errors import NotListed
from windowbox.models.objects import Object
from windowbox.models.recordsets import RecordKey, RecordSet, RecordType
from windowbox.models.refs import DNSRECORDS, RUNTIME, ObjectRef
from windowbox.settings.dnssettings import DnsSettings
from workers.core.lifecycle.actuators import Run
from workers.core.lifecycle.runpredicates import Scope
from workers.dns.record.actuator import DNSRecordActuator
from workers.dns.record.claims import Claims
from workers.dns.record.twins import SharedTwins

ZONE = "local.gardener.cloud"
SPEC: dict[str, Any] = {
    "type": "local", "name": f"api.{ZONE}", "recordType": "A", "values": ["10.0.0.1"], "secretRef": {},
}  # fmt: skip
KEY = RecordKey(SPEC["name"], "A")
ONE, OTHER = (ObjectRef(RUNTIME, DNSRECORDS.id, "demo", name) for name in ("one", "other"))


def twins_of(bus: Bus, zone: str = ZONE) -> tuple[SharedTwins, Claims]:
    scope = Scope(frozenset({"local"}), frozenset({"shoot"}))
    claims = Claims(bus, scope, [zone], lambda: {RUNTIME})
    return SharedTwins(bus, claims), claims


async def test_a_worker_asks_the_one_that_follows_all_dnsrecords(
    roles: RoleServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        connected(roles.access("watcher")) as watcher,
        connected(roles.access("worker")) as near,
        connected(roles.access("worker")) as far,
    ):
        await streams.ensure(watcher)
        await announce(watcher, ONE, SPEC)
        (holder, claims), (asker, _) = twins_of(near), twins_of(far)

        async def both(twin: ObjectRef | None) -> bool:
            """Whether both say so by now."""
            with contextlib.suppress(NotListed):  # as long as nobody answers
                return [await one.find(ONE, ZONE, KEY) for one in (asker, holder)] == [twin, twin]
            return False

        with pytest.raises(NotListed, match="no worker follows"):
            await asker.find(ONE, ZONE, KEY)
        async with running(claims.run(), holder.answer()):
            with pytest.raises(NotListed):  # `demo` may have more records than have been announced
                await eventually(lambda: asker.find(ONE, ZONE, KEY))
            await watcher.publish(subjects.listed(RUNTIME, DNSRECORDS.id), b"")
            await eventually(lambda: both(None))
            await announce(watcher, OTHER, SPEC)
            await eventually(lambda: both(OTHER))
        with pytest.raises(NotListed, match="no worker follows"):
            await asker.find(ONE, ZONE, KEY)
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize(
    ("leaving", "blocked", "others"),
    [
        pytest.param("CNAME", ["A", "A", "TXT"], [], id="a-cname-goes"),
        pytest.param("A", ["CNAME"], ["AAAA"], id="what-a-cname-cannot-join-goes"),
    ],
)
async def test_records_are_enqueued_when_another_type_under_their_name_goes(
    bus: Bus, named: NameServer, leaving: RecordType, blocked: list[str], others: list[str]
) -> None:
    assert named.key
    zone = {"name": named.zone, "servers": [named.address], "key": named.key.settings()}
    settings = DnsSettings.model_validate({"zones": [zone]})
    nameserver, name = Nameserver(settings), f"blocked.{named.zone}"
    (holder, claims), (asker, _) = twins_of(bus, named.zone), twins_of(bus)
    values = {"A": ("10.0.0.1",), "AAAA": ("2001:db8::1",), "CNAME": ("else.example",), "TXT": ("a",)}

    async def announced(place: int, record_type: str, *, deleting: bool = False) -> Object:
        ref = ObjectRef(RUNTIME, DNSRECORDS.id, "demo", f"{place}-{record_type.lower()}")
        spec = SPEC | {"name": name, "recordType": record_type, "values": list(values[record_type])}
        return await announce(bus, ref, spec, deleting=deleting)

    async def enqueued() -> set[str]:
        wishes = consumers.snapshot(bus, streams.TRIGGERS, [subjects.wish("dnsrecord", ">")])
        return {subjects.ref(subjects.without("trigger.dnsrecord", one.subject)).name async for one in wishes}

    async def told_them(actuator: DNSRecordActuator, run: Run) -> bool:
        with contextlib.suppress(NotListed):  # as long as nobody answers
            await actuator.delete(run)
        return await enqueued() == waiting

    try:
        async with running(claims.run(), holder.answer()):
            going = await announced(0, leaving, deleting=True)
            waiting = {(await announced(n, one)).name for n, one in enumerate(blocked, 1)}
            for one in others:
                await announced(9, one)
            await bus.publish(subjects.listed(RUNTIME, DNSRECORDS.id), b"")
            await nameserver.replace(named.zone, RecordSet(RecordKey(name, leaving), 120, values[leaving]))
            for twins in (asker, holder):
                await bus.purge(streams.TRIGGERS, subjects.wish("dnsrecord", ">"))
                run = Run(ObjectRef(RUNTIME, DNSRECORDS.id, "demo", going.name), going, None, Recorder(bus))
                actuator = DNSRecordActuator(nameserver, settings, twins, Queue(bus, "dnsrecord"))
                await eventually(lambda run=run, actuator=actuator: told_them(actuator, run))  # type: ignore[misc]
        assert zones.answers(named, name, leaving) == []
    finally:
        await nameserver.aclose()


async def test_a_name_is_deleted_though_nobody_tells_any_more_who_waits_for_it(
    bus: Bus, named: NameServer
) -> None:
    class Handover(Nameserver):
        """The lease is lost while the record is deleted."""

        async def delete(self, *arguments: Any, **more: Any) -> None:
            await super().delete(*arguments, **more)
            answering.cancel()
            await asyncio.wait([answering])

    async def told_by(twins: SharedTwins) -> bool:
        with contextlib.suppress(NotListed):  # as long as nobody answers
            return await twins.find(ONE, named.zone, KEY) is None
        return False

    assert named.key
    zone = {"name": named.zone, "servers": [named.address], "key": named.key.settings()}
    settings = DnsSettings.model_validate({"zones": [zone]})
    nameserver, name = Handover(settings), f"handover.{named.zone}"
    (holder, claims), (asker, _) = twins_of(bus, named.zone), twins_of(bus)
    queue = Queue(bus, "dnsrecord")
    going = await announce(bus, ONE, SPEC | {"name": name}, deleting=True)
    await bus.publish(subjects.listed(RUNTIME, DNSRECORDS.id), b"")
    try:
        async with running(claims.run()):
            for twins in (asker, holder):
                answering = asyncio.create_task(holder.answer())
                await nameserver.replace(named.zone, RecordSet(RecordKey(name, "A"), 120, ("10.0.0.1",)))
                run = Run(ONE, going, None, Recorder(bus))
                actuator = DNSRecordActuator(nameserver, settings, twins, queue)
                await eventually(lambda twins=twins: told_by(twins))  # type: ignore[misc]
                await actuator.delete(run)
                assert answering.done()
                assert zones.answers(named, name, "A") == []
    finally:
        await nameserver.aclose()


async def test_a_name_whose_twins_nobody_tells_is_not_taken_for_deleted(roles: RoleServer) -> None:
    async def never(_: bytes) -> bytes:
        await asyncio.Event().wait()
        return b""

    class Actuator(DNSRecordActuator):
        def __init__(self, twins: SharedTwins) -> None:
            self._twins = twins

        async def _remove(self, run: Run) -> None:
            await self._twins.find(ONE, ZONE, KEY)

    async with (
        connected(roles.access("worker")) as frozen,
        connected(roles.access("worker")) as near,
        queries.answering(frozen, queries.TWINS, never),
    ):
        twins, _ = twins_of(near)
        run: Any = None
        with pytest.raises(NotListed):
            await Actuator(twins).force_delete(run)


async def test_a_worker_that_follows_dnsrecords_again_forgets_what_it_knew(bus: Bus) -> None:
    await bus.publish(subjects.listed(RUNTIME, DNSRECORDS.id), b"")
    await announce(bus, ONE, SPEC)
    twins, claims = twins_of(bus)

    async def found() -> list[ObjectRef | None]:
        with contextlib.suppress(NotListed):  # as long as nobody answers
            return [await twins.find(OTHER, ZONE, KEY)]
        return []

    async with running(claims.run(), twins.answer()):
        assert await eventually(found) == [ONE]
    await bus.purge(streams.OBJECTS, subjects.seen(ONE))
    async with running(claims.run(), twins.answer()):
        assert await eventually(found) == [None]
