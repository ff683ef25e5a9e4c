"""A bus made anew knows nothing until clusters are listed: nothing irreversible is decided before."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import orjson
import pytest
import pytest_asyncio

from bus import streams, subjects
from bus.messages import OPERATION, UID, VERSION, Wish
from bus.transport.connection import Bus
from bus.workqueue.queue import Queue
from tests.e2e import zones
from tests.support.running import eventually, running
from tests.support.servers import NameServer
from windowbox.clients.nameserver import Nameserver
from windowbox.errors import TransientError
from windowbox.models.objects import Object
from windowbox.models.recordsets import RecordKey, RecordSet
from windowbox.models.refs import BACKUP_BUCKETS, DNSRECORDS, ObjectRef
from windowbox.settings.dnssettings import DnsSettings
from workers.core.lifecycle.actuators import Run
from workers.core.lifecycle.runpredicates import Scope
from workers.dns.record.actuator import DNSRecordActuator
from workers.dns.record.claims import Claims
from workers.dns.record.drift import DriftCheck
from workers.dns.record.orphans import OrphanedNames
from workers.kinds.backups.backupsecrets import SecretName
from workers.kinds.backups.secretsharing import Sharers

SEEDS = 200


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


@pytest_asyncio.fixture
async def made(bus: Bus) -> AsyncIterator[Bus]:
    await streams.ensure(bus)
    yield bus


@pytest.mark.timeout(300)
async def test_a_name_stays_whose_other_record_was_not_announced_yet(made: Bus, named: NameServer) -> None:
    assert named.key
    zone = {"name": named.zone, "servers": [named.address], "key": named.key.settings()}
    settings = DnsSettings.model_validate({"zones": [zone]})
    nameserver, name = Nameserver(settings), f"twins.{named.zone}"
    scope = Scope(frozenset({"local"}), frozenset({"shoot"}))
    taking_part: set[str] = set()
    claims = Claims(made, scope, [named.zone], lambda: taking_part)
    actuator = DNSRecordActuator(nameserver, settings, claims, Queue(made, "dnsrecord"))
    spec = {"type": "local", "name": name, "recordType": "A", "values": ["10.0.0.1"], "secretRef": {}}
    await nameserver.replace(named.zone, RecordSet(RecordKey(name, "A"), 120, ("10.0.0.1",)))
    try:
        async with running(claims.run()):
            for seed in range(SEEDS):
                cluster, chance = f"c{seed}", random.Random(seed)
                twins = chance.choice([cluster, f"twin{seed}"])  # in another cluster, as during a migration
                taking_part |= {cluster, twins}
                one = ObjectRef(cluster, DNSRECORDS.id, "demo", "one")
                other = ObjectRef(twins, DNSRECORDS.id, "demo", "other")
                leaving = await announce(made, one, spec, deleting=True)
                run = Run(one, leaving, None, Recorder(made))
                delete = chance.choice([actuator.delete, actuator.force_delete])
                deleting = asyncio.create_task(until_decided(lambda run=run, delete=delete: delete(run)))  # type: ignore[misc]
                # The announcement has to meet the run at every stage.
                await asyncio.sleep(chance.choice([0, 0.001, 0.003]))
                assert not deleting.done()
                for listed in chance.sample(sorted({cluster, twins}), k=len({cluster, twins})):
                    if listed == twins:
                        await announce(made, other, spec)
                    await made.publish(subjects.listed(listed, DNSRECORDS.id), b"")
                await deleting
                assert zones.answers(named, name) == ["10.0.0.1"], seed
                # Its own values may have been overwritten by those of the record that went.
                comparing = await made.last(streams.TRIGGERS, subjects.wish("dnsrecord", subjects.key(other)))
                assert comparing, seed
                assert Wish.decoded(comparing.data).drift, seed
                # Gone, it is no twin of those in the next cluster.
                await made.publish(subjects.seen(other), b"", {OPERATION: "DELETED", UID: "u", VERSION: "2"})
            lonely = ObjectRef("alone", DNSRECORDS.id, "demo", "one")
            leaving = await announce(made, lonely, spec, deleting=True)
            await made.publish(subjects.listed("alone", DNSRECORDS.id), b"")
            await until_decided(lambda: actuator.delete(Run(lonely, leaving, None, Recorder(made))))
            await asyncio.to_thread(zones.until, named, name, [])
    finally:
        await nameserver.aclose()


async def test_a_name_that_a_late_cluster_needs_is_written_again(made: Bus, named: NameServer) -> None:
    assert named.key
    zone = {"name": named.zone, "servers": [named.address], "key": named.key.settings()}
    nameserver = Nameserver(DnsSettings.model_validate({"zones": [zone]}))
    scope = Scope(frozenset({"local"}), frozenset({"shoot"}))
    claims, queue = Claims(made, scope, [named.zone], set), Queue(made, "dnsrecord")
    drift = DriftCheck(nameserver, claims, OrphanedNames(made, nameserver, claims, queue, []), queue, 600)
    name = f"late.{named.zone}"
    spec = {"type": "local", "name": name, "recordType": "A", "values": ["10.0.0.1"], "secretRef": {}}
    late = ObjectRef("late", DNSRECORDS.id, "demo", "late")

    async def is_enqueued() -> bool:
        return await made.last(streams.TRIGGERS, subjects.wish("dnsrecord", subjects.key(late))) is not None

    try:
        async with running(claims.run(), drift.run()):
            await made.publish(subjects.listed("early", DNSRECORDS.id), b"")
            await eventually(lambda: "early" in claims.listed and not claims.newly_listed.is_set())
            status = {"observedGeneration": 0, "lastOperation": {"type": "Create", "state": "Succeeded"}}
            await announce(made, late, spec, status=status)
            await made.publish(subjects.listed("late", DNSRECORDS.id), b"")
            await eventually(is_enqueued)
    finally:
        await nameserver.aclose()


@pytest.mark.timeout(300)
async def test_the_sharers_of_a_secret_are_only_told_of_listed_clusters(made: Bus) -> None:
    sharers, secret = Sharers(made, BACKUP_BUCKETS), SecretName("garden", "credentials")
    spec = {"type": "local", "secretRef": secret._asdict()}
    async with running(sharers.run()):
        for seed in range(SEEDS):
            cluster, chance = f"c{seed}", random.Random(seed)
            one, other = (ObjectRef(cluster, BACKUP_BUCKETS.id, "", n) for n in ("one", "other"))
            leaving = await announce(made, one, spec, deleting=True)
            run = Run(one, leaving, None, Recorder(made))
            asking = asyncio.create_task(until_decided(lambda run=run: sharers.others(run, secret)))  # type: ignore[misc]
            # The announcement has to meet the run at every stage.
            await asyncio.sleep(chance.choice([0, 0.001, 0.003]))
            assert not asking.done()
            await announce(made, other, spec)
            await made.publish(subjects.listed(cluster, BACKUP_BUCKETS.id), b"")
            assert [found.name for found in await asking] == ["other"], seed
