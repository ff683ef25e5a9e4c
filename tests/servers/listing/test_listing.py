"""A new bus knows no objects until clusters are listed: no irreversible decision is made before."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, cast

import orjson
import pytest

from bus import queries, streams, subjects
from bus.messages import OPERATION, UID, VERSION, Wish
from bus.transport import consumers
from bus.transport.connection import Bus, connected
from bus.workqueue.queue import Queue
from tests.e2e import zones
from tests.support.cases import cases
from tests.support.roles import RoleServer
from tests.support.running import eventually, running
from tests.support.servers import NameServer
from windowbox.clients.nameserver import Nameserver
from windowbox.errors import NotListed, TransientError
from windowbox.models.objects import Object
from windowbox.models.recordsets import RecordKey, RecordSet, RecordType
from windowbox.models.refs import BACKUP_BUCKETS, DNSRECORDS, RUNTIME, ObjectRef
from windowbox.settings.dnssettings import DnsSettings
from workers.core.lifecycle.actuators import Run
from workers.core.lifecycle.runpredicates import Scope
from workers.dns.record.actuator import DNSRecordActuator
from workers.dns.record.claims import Claims
from workers.dns.record.cloudzones import HostedZones
from workers.dns.record.orphans import OrphanedNames
from workers.dns.record.recordpool import DriftCheck
from workers.dns.record.twins import SharedTwins
from workers.kinds.backups.backupsecrets import SecretName
from workers.kinds.backups.secretsharing import Sharers

SEEDS = 200 if os.environ.get("LONG") else 60
ZONE = "local.gardener.cloud"
SPEC: dict[str, Any] = {
    "type": "local", "name": f"api.{ZONE}", "recordType": "A", "values": ["10.0.0.1"], "secretRef": {},
}  # fmt: skip
KEY = RecordKey(SPEC["name"], "A")
ONE, OTHER = (ObjectRef(RUNTIME, DNSRECORDS.id, "demo", name) for name in ("one", "other"))


class Recorder:
    """Reads from the bus, and does what it is asked to."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def read(self, ref: ObjectRef) -> Object | None:
        stored = await self._bus.last(streams.OBJECTS, subjects.seen(ref))
        return Object(orjson.loads(stored.data)) if stored else None

    async def call(
        self, door: str, request: Any, act: Callable[..., Awaitable[Any]], *args: Any, effect: bool = False
    ) -> Any:
        return await act(*args)

    def wrote(self, ref: ObjectRef, version: str) -> None: ...

    async def time(self) -> datetime:
        return datetime.now(UTC)

    async def secret(self, ref: ObjectRef, parse: Callable[[Any], Any]) -> Any:
        raise AssertionError("not asked for here")


async def announce(
    bus: Bus, ref: ObjectRef, spec: dict[str, Any], *, deleting: bool = False, **more: Any
) -> Object:
    metadata: dict[str, Any] = {"uid": str(ref), "namespace": ref.namespace, "name": ref.name}
    if deleting:
        metadata["deletionTimestamp"] = "2025-01-01T00:00:00Z"
    raw = {"metadata": metadata, "spec": spec, **more}
    headers = {OPERATION: "LISTED", UID: str(ref), VERSION: "1"}
    await bus.publish(subjects.seen(ref), orjson.dumps(raw), headers)
    return Object(raw)


async def until_decided(decide: Callable[[], Awaitable[Any]]) -> Any:
    """What is decided as soon as anything is."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(TransientError):
                return await decide()
            await asyncio.sleep(0)


NO_CLOUDS = HostedZones(cast(Any, None))
"""Records of type local need no credentials of a cloud."""


def settings_of(named: NameServer) -> DnsSettings:
    assert named.key
    zone = {"name": named.zone, "servers": [named.address], "key": named.key.settings()}
    return DnsSettings.model_validate({"zones": [zone]})


def claims_of(bus: Bus, zone: str, taking_part: Callable[[], set[str]] = lambda: {RUNTIME}) -> Claims:
    return Claims(bus, Scope(frozenset({"local"}), frozenset({"shoot"})), [zone], taking_part)


def twins_of(bus: Bus, zone: str = ZONE) -> tuple[SharedTwins, Claims]:
    claims = claims_of(bus, zone)
    return SharedTwins(bus, claims), claims


@pytest.mark.timeout(300)
async def test_a_name_with_an_unannounced_second_record_stays(bus: Bus, named: NameServer) -> None:
    settings, name = settings_of(named), f"twins.{named.zone}"
    taking_part: set[str] = set()
    claims, spec = claims_of(bus, named.zone, lambda: taking_part), SPEC | {"name": name}
    async with contextlib.aclosing(Nameserver(settings)) as nameserver:
        actuator = DNSRecordActuator(nameserver, settings, NO_CLOUDS, claims, Queue(bus, "dnsrecord"))
        await nameserver.replace(named.zone, RecordSet(RecordKey(name, "A"), 120, ("10.0.0.1",)))
        async with running(claims.run()):
            for seed in range(SEEDS):
                cluster, chance = f"c{seed}", random.Random(seed)
                twins = chance.choice([cluster, f"twin{seed}"])  # in another cluster, as during a migration
                taking_part |= {cluster, twins}
                one = ObjectRef(cluster, DNSRECORDS.id, "demo", "one")
                other = ObjectRef(twins, DNSRECORDS.id, "demo", "other")
                leaving = await announce(bus, one, spec, deleting=True)
                run = Run(one, leaving, None, Recorder(bus))
                delete = chance.choice([actuator.delete, actuator.force_delete])
                deleting = asyncio.create_task(until_decided(lambda run=run, delete=delete: delete(run)))  # type: ignore[misc]
                # The announcement has to meet the run at every stage.
                await asyncio.sleep(chance.choice([0, 0.001, 0.003]))
                assert not deleting.done()
                for listed in chance.sample(sorted({cluster, twins}), k=len({cluster, twins})):
                    if listed == twins:
                        await announce(bus, other, spec)
                    await bus.publish(subjects.listed(listed, DNSRECORDS.id), b"")
                await deleting
                assert zones.answers(named, name) == ["10.0.0.1"], seed
                # Its own values may have been overwritten by those of the record that went.
                comparing = await bus.last(streams.TRIGGERS, subjects.wish("dnsrecord", subjects.key(other)))
                assert comparing, seed
                assert Wish.decoded(comparing.data).drift, seed
                # Gone, it is no twin of those in the next cluster.
                await bus.publish(subjects.seen(other), b"", {OPERATION: "DELETED", UID: "u", VERSION: "2"})
            lonely = ObjectRef("alone", DNSRECORDS.id, "demo", "one")
            leaving = await announce(bus, lonely, spec, deleting=True)
            await bus.publish(subjects.listed("alone", DNSRECORDS.id), b"")
            await until_decided(lambda: actuator.delete(Run(lonely, leaving, None, Recorder(bus))))
            await asyncio.to_thread(zones.until, named, name, [])


async def test_a_name_that_a_late_cluster_needs_is_written_again(bus: Bus, named: NameServer) -> None:
    claims, queue = claims_of(bus, named.zone, set), Queue(bus, "dnsrecord")
    spec, late = SPEC | {"name": f"late.{named.zone}"}, ObjectRef("late", DNSRECORDS.id, "demo", "late")

    async def is_enqueued() -> bool:
        return await bus.last(streams.TRIGGERS, subjects.wish("dnsrecord", subjects.key(late))) is not None

    async with contextlib.aclosing(Nameserver(settings_of(named))) as nameserver:
        drift = DriftCheck(nameserver, claims, OrphanedNames(bus, nameserver, claims, queue, []), queue, 600)
        async with running(claims.run(), drift.run()):
            await bus.publish(subjects.listed("early", DNSRECORDS.id), b"")
            await eventually(lambda: "early" in claims.listed and not claims.newly_listed.is_set())
            status = {"observedGeneration": 0, "lastOperation": {"type": "Create", "state": "Succeeded"}}
            await announce(bus, late, spec, status=status)
            await bus.publish(subjects.listed("late", DNSRECORDS.id), b"")
            await eventually(is_enqueued)


@pytest.mark.timeout(300)
async def test_sharers_of_a_secret_count_listed_clusters_only(bus: Bus) -> None:
    sharers, secret = Sharers(bus, BACKUP_BUCKETS), SecretName("garden", "credentials")
    spec = {"type": "local", "secretRef": secret._asdict()}
    async with running(sharers.run()):
        for seed in range(SEEDS):
            cluster, chance = f"c{seed}", random.Random(seed)
            one, other = (ObjectRef(cluster, BACKUP_BUCKETS.id, "", n) for n in ("one", "other"))
            leaving = await announce(bus, one, spec, deleting=True)
            run = Run(one, leaving, None, Recorder(bus))
            asking = asyncio.create_task(until_decided(lambda run=run: sharers.others(run, secret)))  # type: ignore[misc]
            # The announcement has to meet the run at every stage.
            await asyncio.sleep(chance.choice([0, 0.001, 0.003]))
            assert not asking.done()
            await announce(bus, other, spec)
            await bus.publish(subjects.listed(cluster, BACKUP_BUCKETS.id), b"")
            assert [found.name for found in await asking] == ["other"], seed


async def test_a_worker_asks_the_one_that_follows_all_records(
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


@cases(
    "leaving blocked others",
    ("a-cname-goes", "CNAME", ["A", "A", "TXT"], []),
    ("what-a-cname-cannot-join-goes", "A", ["CNAME"], ["AAAA"]),
)
async def test_records_are_enqueued_when_another_type_goes(
    bus: Bus, named: NameServer, leaving: RecordType, blocked: list[str], others: list[str]
) -> None:
    settings, name = settings_of(named), f"blocked.{named.zone}"
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

    async with contextlib.aclosing(Nameserver(settings)) as nameserver:
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
                actuator = DNSRecordActuator(nameserver, settings, NO_CLOUDS, twins, Queue(bus, "dnsrecord"))
                await eventually(lambda: told_them(actuator, run))  # noqa: B023
        assert zones.answers(named, name, leaving) == []


async def test_a_name_is_deleted_without_an_answer_about_waiters(bus: Bus, named: NameServer) -> None:
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

    settings, name = settings_of(named), f"handover.{named.zone}"
    (holder, claims), (asker, _) = twins_of(bus, named.zone), twins_of(bus)
    queue = Queue(bus, "dnsrecord")
    going = await announce(bus, ONE, SPEC | {"name": name}, deleting=True)
    await bus.publish(subjects.listed(RUNTIME, DNSRECORDS.id), b"")
    async with contextlib.aclosing(Handover(settings)) as nameserver, running(claims.run()):
        for twins in (asker, holder):
            answering = asyncio.create_task(holder.answer())
            await nameserver.replace(named.zone, RecordSet(RecordKey(name, "A"), 120, ("10.0.0.1",)))
            run = Run(ONE, going, None, Recorder(bus))
            actuator = DNSRecordActuator(nameserver, settings, NO_CLOUDS, twins, queue)
            await eventually(lambda: told_by(twins))  # noqa: B023
            await actuator.delete(run)
            assert answering.done()
            assert zones.answers(named, name, "A") == []


async def test_a_name_with_unknown_twins_is_not_deleted(roles: RoleServer) -> None:
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


async def test_a_worker_that_follows_again_starts_empty(bus: Bus) -> None:
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
