"""DNSRecords whose name or type is changed, by runs that are cut off, on a real name server."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from bus import intents, subjects
from bus.workqueue.queue import Queue
from tests.api.lifecycle.stage import Stage
from tests.e2e import zones
from tests.support.rules import rule
from tests.support.running import running
from tests.support.servers import NameServer
from windowbox.clients.nameserver import Nameserver
from windowbox.models.refs import DNSRECORDS, RUNTIME, ObjectRef
from windowbox.settings.dnssettings import DnsSettings
from workers.core.cloudaccounts import CloudAccounts
from workers.core.lifecycle.lifecycle import LifeCycle
from workers.core.lifecycle.runpredicates import Scope
from workers.core.lifecycle.world import World
from workers.dns.record.actuator import KIND, DNSRecordActuator
from workers.dns.record.claims import Claims
from workers.dns.record.cloudzones import HostedZones
from workers.dns.record.twins import SharedTwins


class Died(Exception):
    """The process ends here."""


class MortalNameserver(Nameserver):
    """Lets the run die before or after its changes, which count down."""

    steps = 1_000

    async def replace(self, *args: Any, **more: Any) -> None:
        self._step()
        await super().replace(*args, **more)
        self._step()

    async def delete(self, *args: Any, **more: Any) -> None:
        self._step()
        await super().delete(*args, **more)
        self._step()

    def _step(self) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise Died


@pytest_asyncio.fixture
async def nameserver(stage: Stage, named: NameServer) -> AsyncIterator[MortalNameserver]:
    """What the DNSRecords of the stage are written to."""
    assert named.key
    zone = {"name": named.zone, "servers": [named.address], "key": named.key.settings()}
    settings = DnsSettings.model_validate({"zones": [zone]})
    made, scope = MortalNameserver(settings), Scope(frozenset({stage.type}), frozenset({"shoot"}))
    claims = Claims(stage.bus, scope, [named.zone], lambda: {RUNTIME})
    twins = SharedTwins(stage.bus, claims)
    hosted_zones = HostedZones(CloudAccounts(stage.bus, stage.clusters))
    actuator = DNSRecordActuator(made, settings, hosted_zones, twins, Queue(stage.bus, "dnsrecord"))
    stage.life = LifeCycle(KIND, actuator, scope, World(stage.bus, stage.clusters))
    try:
        async with running(claims.run(), twins.answer()):
            yield made
    finally:
        await made.aclose()


async def ask(stage: Stage, ref: ObjectRef, **spec: Any) -> None:
    operation = {"annotations": {"gardener.cloud/operation": "reconcile"}}
    await stage.api.merge(DNSRECORDS, ref.namespace, ref.name, {"metadata": operation, "spec": spec})
    await stage.announced(ref)


@rule("A-4", "B-1")
@pytest.mark.parametrize(
    ("type", "last"),
    [
        ("A", "renamed again"),
        ("A", "gone"),
        ("CNAME", "deleted"),
        pytest.param("A", "deleted", marks=pytest.mark.long),
        pytest.param("CNAME", "renamed again", marks=pytest.mark.long),
        pytest.param("CNAME", "gone", marks=pytest.mark.long),
    ],
)
async def test_no_former_name_stays_whichever_run_is_cut_off(
    stage: Stage, nameserver: MortalNameserver, named: NameServer, type: str, last: str
) -> None:
    ref = await stage.record()
    for steps in itertools.count():
        first, third = f"first-{steps}.{named.zone}", f"third-{steps}.{named.zone}"
        second = first if type == "CNAME" else f"second-{steps}.{named.zone}"
        await ask(stage, ref, name=first, recordType="A", values=["10.0.0.1"])
        assert await stage.run(ref) == "succeeded"
        assert zones.answers(named, first) == ["10.0.0.1"]
        await ask(stage, ref, name=second, recordType=type, values=["10.0.0.2" if type == "A" else third])
        nameserver.steps, died = steps, True
        with contextlib.suppress(Died):
            await stage.run(ref)
            died = False
        nameserver.steps = 1_000
        if last != "renamed again":
            held = {"finalizers": None} if last == "gone" else {}
            change = {"spec": {"name": third}, "metadata": held}
            orphan = await stage.api.merge(DNSRECORDS, ref.namespace, ref.name, change)
            await stage.api.delete(DNSRECORDS, ref.namespace, ref.name)
            if last == "gone":
                await intents.keep_orphan(stage.bus, subjects.key(ref), orphan)
                assert await stage.run(ref) == "nothing to do"
            else:
                await stage.announced(ref)
                assert await stage.run(ref) == "succeeded"
            ref = await stage.record()
        else:
            await ask(stage, ref, name=third, recordType="A", values=["10.0.0.3"])
            assert await stage.run(ref) == "succeeded"
            assert zones.answers(named, third) == ["10.0.0.3"]
        for name, former in itertools.product({first, second}, {"A", type}):
            assert zones.answers(named, name, former) == [], steps
        if not died:
            break
    assert steps == 4


@rule("A-4")
async def test_a_record_has_few_former_names_however_often_it_is_renamed(
    stage: Stage, nameserver: MortalNameserver, named: NameServer
) -> None:
    ref, zone = await stage.record(), named.zone
    for place in range(30):
        await ask(stage, ref, name=f"many-{place}.{zone}", values=["10.0.0.1"])
        nameserver.steps = 1_000 if place in (0, 29) else 0
        with contextlib.suppress(Died):
            assert await stage.run(ref) == "succeeded"
        reported = (await intents.last(stage.bus, subjects.key(ref))).intent
        assert reported
        written = reported.memo["written"]
        assert len(written) <= 22
    assert written == [[zone, f"many-29.{zone}", "A"]]


@rule("A-4")
async def test_a_name_that_cannot_be_written_leaves_the_former_one(
    stage: Stage, nameserver: MortalNameserver, named: NameServer
) -> None:
    ref, name = await stage.record(), f"kept.{named.zone}"
    await ask(stage, ref, name=name, values=["10.0.0.1"])
    assert await stage.run(ref) == "succeeded"
    await ask(stage, ref, name=f"kept.{named.zone}.not")
    assert await stage.run(ref) == "failed"
    assert zones.answers(named, name) == ["10.0.0.1"]
    await stage.api.delete(DNSRECORDS, ref.namespace, ref.name)
    await stage.announced(ref)
    assert await stage.run(ref) == "succeeded"
    assert zones.answers(named, name) == []
