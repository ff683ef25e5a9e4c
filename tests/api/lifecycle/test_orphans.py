"""Cleanup after objects that vanish although they have our finalizer."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from bus import intents, streams, subjects
from bus.intents import Reported
from bus.messages import OPERATION, Reason, StatusIntent, Wish
from bus.transport.connection import connected
from bus.workqueue.queue import Queue
from tests.api.lifecycle.stage import Stage, said
from tests.e2e import zones
from tests.support.dnsworld import dns_world
from tests.support.kindworld import CLOUDPROVIDER
from tests.support.natsserver import NatsServer
from tests.support.rules import rule
from tests.support.running import eventually
from tests.support.servers import ControlPlane, NameServer
from windowbox.clients.nameserver import Nameserver
from windowbox.errors import Superseded, Unreachable
from windowbox.models.objects import Object
from windowbox.models.recordsets import RecordKey, RecordSet
from windowbox.models.refs import DNSRECORDS, RUNTIME, ObjectRef
from windowbox.settings.bussettings import Access
from windowbox.settings.dnssettings import DnsSettings


async def vanish(stage: Stage, ref: ObjectRef) -> None:
    """Remove the object in spite of its finalizers, and wait until the bus announces it."""
    await stage.api.merge(DNSRECORDS, ref.namespace, ref.name, {"metadata": {"finalizers": None}})
    await stage.api.remove(DNSRECORDS, ref.namespace, ref.name)

    async def gone() -> bool:
        seen = await stage.bus.last(streams.OBJECTS, subjects.seen(ref))
        return seen is not None and seen.headers[OPERATION] == "DELETED"

    await eventually(gone)


async def kept(stage: Stage, ref: ObjectRef) -> Reported:
    return await intents.last(stage.bus, subjects.key(ref))


async def test_a_run_whose_object_vanishes_cleans_up(stage: Stage) -> None:
    ref = await stage.record()
    stage.crew.task = lambda: vanish(stage, ref)
    assert await stage.run(ref) == "waiting"
    stage.crew.task = None
    assert await stage.run(ref, reason="retry") == "nothing to do"
    assert stage.crew.asked == ["reconcile", "delete"]
    assert await kept(stage, ref) == (None, 0)
    assert await stage.run(ref) == "nothing to do"
    assert stage.crew.asked == ["reconcile", "delete"]


async def test_a_failed_cleanup_is_retried(stage: Stage) -> None:
    ref = await stage.record()
    stage.crew.task = lambda: vanish(stage, ref)
    await stage.run(ref)
    stage.crew.task, stage.crew.error = None, Unreachable("away")
    assert await stage.run(ref) == "waiting"
    stage.crew.error = None
    assert await stage.run(ref, reason="retry") == "nothing to do"
    assert stage.crew.asked == ["reconcile", "delete", "delete"]


async def test_an_existing_object_is_no_orphan(stage: Stage) -> None:
    ref = await stage.record()
    assert await stage.run(ref) == "succeeded"
    await intents.keep_orphan(stage.bus, subjects.key(ref), await stage.live(ref))
    await stage.run(ref)
    assert "delete" not in stage.crew.asked
    reported = (await kept(stage, ref)).intent
    assert reported is None or not reported.orphans


async def test_a_report_without_the_known_orphan_is_refused(stage: Stage) -> None:
    ref = await stage.record()
    key, uid = subjects.key(ref), (await stage.live(ref)).uid
    await stage.report(ref, said("Create", "Succeeded"))
    before = await kept(stage, ref)
    await intents.keep_orphan(stage.bus, key, Object({"metadata": {"uid": "former"}}))
    with pytest.raises(Superseded):
        await intents.report(stage.bus, key, StatusIntent(uid=uid, patch={}), before.sequence)
    after = (await kept(stage, ref)).intent
    assert before.intent
    assert after
    assert (after.patch, len(after.orphans)) == (before.intent.patch, 1)
    await intents.forget(stage.bus, key, uid)
    assert (await kept(stage, ref)).intent == after


async def test_the_successor_of_an_orphan_keeps_its_name(
    plane: ControlPlane, nats: NatsServer, named: NameServer
) -> None:
    async with dns_world(plane, nats, named) as world, connected(Access(nats.url)) as bus:
        shoot = await world.shoot()
        former, current = (f"{name}-{shoot.namespace[-8:]}.{named.zone}" for name in ("former", "current"))
        spec = {"recordType": "A", "values": ["10.0.0.1"], "secretRef": {"name": CLOUDPROVIDER}}
        await shoot.create(DNSRECORDS, "web", {"name": current} | spec)
        await shoot.until_ready(DNSRECORDS, "web")
        await asyncio.to_thread(zones.replace, named, former, "A", "10.0.0.1")
        key = subjects.key(ObjectRef(RUNTIME, DNSRECORDS.id, shoot.namespace, "web"))
        metadata = {"uid": "former", "namespace": shoot.namespace, "name": "web"}
        for name in (former, current):
            orphan = Object({"metadata": metadata, "spec": {"type": "local", "name": name} | spec})
            await intents.keep_orphan(bus, key, orphan)
            await Queue(bus, "dnsrecord").wish(key, Wish(reason=Reason.EVENT))
            await world.quiet()
            await asyncio.to_thread(zones.until, named, former, [])
            assert await asyncio.to_thread(zones.answers, named, current) == ["10.0.0.1"]


@rule("DN-49")
async def test_names_that_no_record_needs_are_removed(
    plane: ControlPlane, nats: NatsServer, named: NameServer
) -> None:
    async with (
        dns_world(plane, nats, named, ownership="us", drift_interval=1) as world,
        writing(named, ownership="us") as write,
    ):
        shoot, run = await world.shoot(), uuid.uuid4().hex[:8]
        spec = {"recordType": "A", "values": ["10.0.0.1"], "secretRef": {"name": CLOUDPROVIDER}}
        for name in ("living", "shared"):
            await shoot.create(DNSRECORDS, name, {"name": f"{name}-{run}.{named.zone}"} | spec)
            await shoot.until_ready(DNSRECORDS, name)
        here = f"{RUNTIME}/{shoot.namespace}"
        await write(f"shared-{run}", f"{here}/gone/a")
        await write(f"elsewhere-{run}", f"elsewhere/{shoot.namespace}/gone/b")
        await write(f"unknown-{run}", "")
        await write(f"strange-{run}", f"{here}/>/c")
        for number in range(20):
            await write(f"gone{number}-{run}", f"{here}/gone/d{number}")
        await write(f"former-{run}", f"{here}/living/e")
        for name in (*(f"gone{number}" for number in range(20)), "former"):
            await asyncio.to_thread(zones.until, named, f"{name}-{run}.{named.zone}", [])
        await world.quiet()
        for name in ("living", "shared", "elsewhere", "unknown", "strange"):
            full = f"{name}-{run}.{named.zone}"
            assert await asyncio.to_thread(zones.answers, named, full) == ["10.0.0.1"], name


@contextlib.asynccontextmanager
async def writing(named: NameServer, **about: str) -> AsyncIterator[Callable[[str, str], Awaitable[None]]]:
    """Write a name into the zone, as if a vanished object had left it."""
    assert named.key
    zone = {"name": named.zone, "servers": [named.address], "key": named.key.settings(), **about}
    nameserver = Nameserver(DnsSettings.model_validate({"zones": [zone]}))

    async def write(name: str, resource: str) -> None:
        record = RecordSet(RecordKey(f"{name}.{named.zone}", "A"), 120, ("10.0.0.1",))
        await nameserver.replace(named.zone, record, resource=resource)

    try:
        yield write
    finally:
        await nameserver.aclose()
