"""Reports become status: the newest one, once, on the object that was meant."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from bus import intents, streams, subjects
from bus.clusters.clusters import Clusters
from bus.clusters.registry import Member, Registry
from bus.messages import EventIntent, Reason, RunRecord, StatusIntent, Wish
from bus.outcomes import Done
from bus.transport import consumers
from bus.transport.connection import Bus, connected
from bus.transport.consumers import Consumer
from bus.transport.pull import Pull
from bus.workqueue.pool import DeliveryHold, Item, Pool
from bus.workqueue.queue import Queue
from bus.workqueue.routing import run_due
from patchers import directwrites
from patchers.directwrites import DirectWrites
from patchers.statuspatcher import RateLimiter, StatusPatcher, write_status
from tests.support import loopback
from tests.support.cases import cases
from tests.support.proxy import Proxy, proxy
from tests.support.rules import rule
from tests.support.running import eventually, running
from tests.support.servers import ControlPlane
from windowbox.clients.kubernetes import kube
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Missing
from windowbox.models.extensions import spelled
from windowbox.models.objects import Object
from windowbox.models.refs import DNSRECORDS, RUNTIME, ObjectRef, Resource
from windowbox.settings.bussettings import Access
from workers.core.lifecycle.reporting import Reporter
from workers.core.reports import Reports, with_report

EVENTS = Resource("", "v1", "events", "Event")


@dataclass
class Desk:
    """Where reports are handed in, and what becomes of them is seen."""

    bus: Bus
    api: Kube
    wire: Proxy
    clusters: Clusters

    async def record(self, name: str = "") -> Object:
        """A new DNSRecord."""
        head = {"apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": "DNSRecord"}
        spec = {"type": "none", "name": "a.example", "recordType": "A", "values": [], "secretRef": {}}
        body = {**head, "metadata": {"name": name or f"p-{uuid.uuid4().hex[:8]}"}, "spec": spec}
        return await self.api.create(DNSRECORDS, "default", body)

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

    async def wishes(self) -> int:
        """How many wishes there have been, fulfilled ones included."""
        return int((await self.bus.api(f"STREAM.INFO.{streams.TRIGGERS}"))["state"]["last_seq"])

    @contextlib.asynccontextmanager
    async def open(self, rate: float = 0.0) -> AsyncIterator[None]:
        """Have reports written."""
        pool = Pool(self.bus, intents.PATCH, StatusPatcher(self.bus, self.clusters, rate))
        writes = DirectWrites(self.bus, self.clusters, limited=bool(rate))
        async with running(pool.run(), writes.run(), run_due(self.bus, Queue(self.bus, intents.PATCH))):
            yield


@pytest.fixture
async def desk(control_plane: ControlPlane, nats_url: str, tmp_path: Path) -> AsyncIterator[Desk]:
    async with contextlib.AsyncExitStack() as stack:
        bus = await stack.enter_async_context(connected(Access(nats_url)))
        await streams.ensure(bus)
        wire = await stack.enter_async_context(proxy(urlsplit(control_plane.url).port or 0))
        kubeconfig = tmp_path / "kubeconfig"
        text = control_plane.kubeconfigs["patcher"].read_text()
        kubeconfig.write_text(text.replace(control_plane.url, f"https://127.0.0.1:{wire.port}"))
        patcher = await stack.enter_async_context(kube.from_file(kubeconfig))
        admin = await stack.enter_async_context(kube.from_file(control_plane.kubeconfig))
        inner = await stack.enter_async_context(contextlib.AsyncExitStack())
        yield Desk(bus, admin, wire, Clusters(patcher, Registry(bus), loopback.SETTINGS, {}, inner))


def last(state: str) -> dict[str, Any]:
    """A last operation in this state."""
    return {
        "type": "Create",
        "state": state,
        "progress": 1,
        "description": state,
        "lastUpdateTime": "2026-09-01T10:15:31Z",
    }


def states(versions: list[Object]) -> list[str]:
    return [str(version.last_operation.get("state")) for version in versions]


def reached(state: str) -> Any:
    return lambda version: version.last_operation.get("state") == state


async def test_a_report_about_the_newest_version_takes_no_place_in_the_queue(desk: Desk) -> None:
    record = await desk.record()
    async with desk.open():
        await desk.report(record, lastOperation=last("Succeeded"))
        run = await desk.outcome(record, "Succeeded")
    assert (run.delivery, run.outcome) == (1, "succeeded")
    assert await desk.wishes() == 0


async def test_a_report_whose_writer_died_is_left_to_the_pool(desk: Desk) -> None:
    record = await desk.record()
    await desk.report(record, lastOperation=last("Succeeded"))
    reports = Pull(desk.bus, Consumer(streams.INTENTS, intents.REPORTS, (subjects.intent(">"),), 0.1), 1)
    async with contextlib.aclosing(reports.deliveries()) as taken:  # type: ignore[type-var]
        assert len(await anext(taken)) == 1  # and is not acknowledged
        # `windowbox status` shows how far patchers are behind.
        await desk.report(await desk.record(), lastOperation=last("Processing"))
        depth = await intents.depth(desk.bus)
        assert (depth.waiting, depth.in_hand) == (1, 1)
        assert 0 < depth.oldest_seconds < 60
    async with desk.open():
        run = await desk.outcome(record, "Succeeded")
        await eventually(lambda: _all_written(desk.bus))
    assert [one.stream for one in run.reads] == [streams.INTENTS]
    assert await desk.wishes() == 1


async def test_with_a_limited_rate_all_is_left_to_the_pool(desk: Desk) -> None:
    record = await desk.record()
    async with desk.open(rate=50):
        await desk.report(record, lastOperation=last("Succeeded"))
        await desk.outcome(record, "Succeeded")
    assert await desk.wishes() == 1


async def test_a_report_without_a_version_is_left_to_the_pool(desk: Desk) -> None:
    """Such as one of an object that its run has not read: two writes at once could not be told apart."""
    record = await desk.record()
    intent = StatusIntent(uid=record.uid, patch={"lastOperation": last("Succeeded")})
    async with desk.open():
        await intents.report(desk.bus, desk.key(record), intent, 0)
        await desk.versions(record, reached("Succeeded"))
    assert await desk.wishes() == 1


async def _all_written(bus: Bus) -> bool:
    return await intents.depth(bus) == (0, 0, 0.0)


async def test_a_server_that_does_not_answer_keeps_no_report_from_the_pool(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directwrites, "_PATIENCE", 0.2)
    record = await desk.record()
    desk.wire.hang()
    writes = DirectWrites(desk.bus, desk.clusters)
    async with running(writes.run()):
        await desk.report(record, lastOperation=last("Succeeded"))
        wish = subjects.wish(intents.PATCH, desk.key(record))
        await eventually(lambda: desk.bus.last(streams.TRIGGERS, wish))
    desk.wire.resume()
    async with desk.open():
        await desk.versions(record, reached("Succeeded"))


@contextlib.asynccontextmanager
async def hanging_tenant(desk: Desk, folder: Path) -> AsyncIterator[Callable[[Object], Awaitable[str]]]:
    """Reports are written as they come, and the server of a tenant hangs: the function reports there."""
    registry, kubeconfig = Registry(desk.bus), folder / "kubeconfig"
    async with contextlib.AsyncExitStack() as stack:
        opened = Clusters(desk.api, registry, loopback.SETTINGS, {"elsewhere": kubeconfig}, stack)
        await stack.enter_async_context(running(registry.run(), DirectWrites(desk.bus, opened).run()))
        await registry.complete.wait()
        await registry.join(Member(id="elsewhere", file=str(kubeconfig), kinds=(DNSRECORDS.id,)))
        await eventually(lambda: "elsewhere" in registry.members)
        desk.wire.hang()

        async def report(record: Object) -> str:
            key = subjects.key(ObjectRef("elsewhere", DNSRECORDS.id, record.namespace, record.name))
            status = {"lastOperation": last("Succeeded")}
            intent = StatusIntent(uid=record.uid, patch=status, version=record.resource_version)
            await intents.report(desk.bus, key, intent, 0)
            return subjects.wish(intents.PATCH, key)

        yield report


async def test_a_tenant_whose_server_was_slow_holds_up_no_further_report(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [await desk.record(), await desk.record()]
    async with hanging_tenant(desk, tmp_path) as report:
        # The second one would wait for longer than this test.
        for record, patience in zip(records, (0.2, 1000.0), strict=True):
            monkeypatch.setattr(directwrites, "_PATIENCE", patience)
            wish = await report(record)
            async with asyncio.timeout(4):
                await eventually(functools.partial(desk.bus.last, streams.TRIGGERS, wish))


async def test_a_tenant_whose_server_hangs_holds_few_writes(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directwrites, "_PATIENCE", 1000.0)
    records = [await desk.record() for _ in range(5)]
    async with hanging_tenant(desk, tmp_path) as report:
        wishes = [await report(record) for record in records]
        await eventually(functools.partial(desk.bus.last, streams.TRIGGERS, wishes[4]))

        async def others_wait() -> bool:
            return (await intents.depth(desk.bus))[:2] == (0, 4)

        await eventually(others_wait)
    assert await desk.wishes() == 1


async def test_a_tenants_server_that_answers_gets_one_write_after_the_other(
    desk: Desk, tmp_path: Path
) -> None:
    async with hanging_tenant(desk, tmp_path) as report:
        desk.wire.resume()
        for record in [await desk.record() for _ in range(6)]:
            await report(record)
            await desk.versions(record, reached("Succeeded"))
    assert await desk.wishes() == 0


async def test_what_cannot_be_read_or_is_shown_already_holds_up_no_other_report(desk: Desk) -> None:
    bad, shown, good = [await desk.record() for _ in range(3)]
    async with desk.open():
        await desk.bus.publish(subjects.intent(desk.key(bad)), b"{")
        await desk.report(shown, shown=True, lastOperation=last("Processing"))
        await desk.report(good, lastOperation=last("Succeeded"))
        await desk.versions(good, reached("Succeeded"))
    assert (await desk.api.get(DNSRECORDS, "default", shown.name)).status == {}


@rule("V-8")
async def test_who_has_written_a_report_looks_for_a_newer_one(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, newer = await desk.record(), ["newer"]

    async def overtaken(kube: Kube, ref: ObjectRef, patch: Any, version: str) -> None:
        await write_status(kube, ref, patch, version)
        if newer:
            # Its own write succeeds, too: that the newest one won, nobody knows yet.
            written = await desk.api.get(DNSRECORDS, "default", record.name)
            await desk.report(written, zone=newer.pop())

    monkeypatch.setattr(directwrites, "write_status", overtaken)
    async with running(DirectWrites(desk.bus, desk.clusters).run()):
        await desk.report(record, zone="older")
        wish = subjects.wish(intents.PATCH, desk.key(record))
        await eventually(lambda: desk.bus.last(streams.TRIGGERS, wish))


async def test_only_the_newest_report_is_written(desk: Desk) -> None:
    record = await desk.record()
    await desk.report(record, lastOperation=last("Processing"))
    await desk.report(record, observedGeneration=1, lastOperation=last("Succeeded"))
    async with desk.open():
        [written] = await desk.versions(record, reached("Succeeded"))
    assert written.status == {"observedGeneration": 1, "lastOperation": last("Succeeded")}


@rule("V-8")
async def test_a_report_that_the_pool_repeats_spares_a_newer_one(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, newest = await desk.record(), intents.last
    await desk.report(record, zone="older")
    older = [await newest(desk.bus, desk.key(record))]
    await desk.report(record, zone="newer")
    async with running(DirectWrites(desk.bus, desk.clusters).run()):
        await desk.versions(record, lambda version: version.status.get("zone") == "newer")

    async def last_report(bus: Bus, key: str) -> intents.Reported:
        return older.pop() if older else await newest(bus, key)

    # The pool has read the older report just before the newer one came and was written.
    monkeypatch.setattr(intents, "last", last_report)
    item = Item(desk.key(record), Wish(reason=Reason.REPORT), 1, 1, DeliveryHold(60))
    outcome = await StatusPatcher(desk.bus, desk.clusters).handle(item)
    assert outcome == Done("a newer report is written as it comes")
    assert (await desk.api.get(DNSRECORDS, "default", record.name)).status == {"zone": "newer"}


@rule("V-8")
async def test_an_old_report_is_not_written_after_a_new_one(desk: Desk) -> None:
    record = await desk.record()
    desk.wire.refuse()
    async with desk.open():
        await desk.report(record, lastOperation=last("Processing"))
        await desk.outcome(record, "failed")
        await desk.report(record, lastOperation=last("Succeeded"))
        desk.wire.resume()
        seen = states(await desk.versions(record, reached("Succeeded")))
        assert seen in (["Succeeded"], ["Processing", "Succeeded"])
        await desk.report(record, observedGeneration=2)
        newest = await desk.versions(record, lambda version: version.status.get("observedGeneration") == 2)
        assert states(newest)[-1] == "Succeeded"


@rule("V-1", "V-8")
async def test_changes_of_others_do_not_stop_a_report(desk: Desk) -> None:
    record = await desk.record()
    note = {"metadata": {"annotations": {"example.com/note": "mine"}}}
    await desk.api.merge(DNSRECORDS, "default", record.name, note)
    async with desk.open():
        await desk.report(record, lastOperation=last("Succeeded"))
        written = (await desk.versions(record, reached("Succeeded")))[-1]
    assert written.annotations == {"example.com/note": "mine"}


@rule("B-1", "V-9")
async def test_a_report_is_written_when_the_api_is_back(desk: Desk) -> None:
    record = await desk.record()
    desk.wire.refuse()
    async with desk.open():
        await desk.report(record, lastOperation=last("Succeeded"))
        await desk.outcome(record, "failed")
        desk.wire.resume()
        await desk.versions(record, reached("Succeeded"))


@rule("V-1")
async def test_a_stale_report_spares_the_recreated_object(desk: Desk) -> None:
    former = await desk.record()
    await desk.api.delete(DNSRECORDS, "default", former.name)
    record = await desk.record(former.name)
    async with desk.open():
        await desk.report(former, lastOperation=last("Succeeded"))
        await desk.outcome(former, "its name belongs to another object now")
        assert (await desk.api.get(DNSRECORDS, "default", record.name)).status == {}
        await desk.report(record, lastOperation=last("Processing"))
        await desk.versions(record, reached("Processing"))


@rule("W-7")
@cases(
    "new old",
    ("a-bus-that-went-back-in-time", {"at": "32"}, {"at": "31"}),
    ("an-older-generation", {"generation": 2}, {"generation": 1, "at": "59"}),
)
async def test_an_older_report_reverts_no_status(
    desk: Desk, new: dict[str, Any], old: dict[str, Any]
) -> None:
    def status(state: str, at: str = "31", generation: int = 1) -> dict[str, Any]:
        operation = last(state) | {"lastUpdateTime": f"2026-09-01T10:15:{at}Z"}
        return {"observedGeneration": generation, "lastOperation": operation}

    record = await desk.record()
    async with desk.open():
        await desk.report(record, **status("Succeeded", **new))
        await desk.versions(record, reached("Succeeded"))
        await desk.report(record, **status("Error", **old))
        await desk.outcome(record, "a newer status has been written")
    assert (await desk.api.get(DNSRECORDS, "default", record.name)).status == status("Succeeded", **new)


class Passing:
    """A recorder that only lets pass."""

    async def read(self, ref: ObjectRef) -> Object | None:
        raise NotImplementedError

    async def call(
        self, door: str, request: Any, act: Callable[..., Awaitable[Any]], *args: Any, effect: bool = False
    ) -> Any:
        return await act(*args)

    def wrote(self, ref: ObjectRef, version: str) -> None: ...

    async def time(self) -> datetime:
        return datetime.now(UTC)

    async def secret(self, ref: ObjectRef, parse: Callable[[Mapping[str, bytes]], Any]) -> Any:
        raise NotImplementedError


@rule("V-8")
async def test_reports_go_by_their_order_whatever_the_workers_clocks_say(desk: Desk) -> None:
    record = await desk.record()
    ref = ObjectRef(RUNTIME, DNSRECORDS.id, "default", record.name)
    now, shown = datetime(2026, 9, 1, 10, 15, 31, tzinfo=UTC), []
    async with desk.open():
        for ahead, state in ((90, "Processing"), (-90, "Succeeded"), (0, "Error")):
            found = await desk.api.get(DNSRECORDS, "default", record.name)
            reports = Reports(desk.bus, ref, Passing())
            object = with_report(found, await reports.last())
            # Somebody changes the object, so that the version no longer tells which report is the newer one.
            note = {"metadata": {"annotations": {"example.com/note": state}}}
            await desk.api.merge(DNSRECORDS, "default", record.name, note)
            at = spelled(now + timedelta(seconds=ahead))
            await Reporter(reports, object).report({"lastOperation": last(state) | {"lastUpdateTime": at}})
            written = (await desk.versions(found, reached(state)))[-1]
            shown.append(written.last_operation["lastUpdateTime"])
    assert shown == ["2026-09-01T10:17:01Z"] * 3


async def test_a_report_about_an_object_that_is_gone_is_forgotten(desk: Desk) -> None:
    record = await desk.record()
    await desk.api.delete(DNSRECORDS, "default", record.name)
    async with desk.open():
        await desk.report(record, lastOperation=last("Succeeded"))
        await desk.outcome(record, "gone")
    assert (await intents.last(desk.bus, desk.key(record))).intent is None
    with pytest.raises(Missing):
        await desk.api.get(DNSRECORDS, "default", record.name)


async def test_a_report_that_the_api_refuses_makes_way_for_the_next(desk: Desk) -> None:
    record = await desk.record()
    async with desk.open():
        await desk.report(record, observedGeneration="many")
        refused = await desk.outcome(record, "failed")
        assert "observedGeneration" in refused.note
        await desk.report(record, lastOperation=last("Succeeded"))
        await desk.versions(record, reached("Succeeded"))


async def test_writes_beyond_the_rate_wait() -> None:
    pace = RateLimiter(0.01)
    waiting = [asyncio.create_task(pace.wait()) for _ in range(3)]
    done, pending = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    assert (len(done), len(pending)) == (1, 2)
    for task in pending:
        task.cancel()


def test_without_a_limit_no_write_waits() -> None:
    pace = RateLimiter(0)
    for _ in range(3):
        with pytest.raises(StopIteration):
            pace.wait().send(None)  # ends at its first step, without a turn of the event loop


async def test_a_repeated_event_is_counted(desk: Desk) -> None:
    record = await desk.record()
    quarrel = EventIntent(type="Warning", reason="ReconcileError", note="the name server is away")
    other = EventIntent(type="Warning", reason="ReconcileError", note="the name server refuses")
    async with desk.open():
        for number, event in enumerate((quarrel, other, quarrel), start=1):
            await desk.report(record, event=event, observedGeneration=number)
            assert await _described(desk, record, number) == number
        page = await desk.api.page(EVENTS)
    reported = {e["message"]: e for e in page.items if e["involvedObject"]["uid"] == record.uid}
    assert {note: event["count"] for note, event in reported.items()} == {quarrel.note: 2, other.note: 1}
    about = reported[quarrel.note]
    assert (about["type"], about["reason"]) == ("Warning", "ReconcileError")
    assert about["involvedObject"]["kind"] == "DNSRecord"


async def test_an_object_with_the_longest_name_has_events(desk: Desk) -> None:
    record = await desk.record("a" * 199 + "." + "b" * 53)
    event = EventIntent(type="Warning", reason="ReconcileError", note="näme server „ns1“ is away")
    async with desk.open():
        await desk.report(record, event=event, observedGeneration=1)
        assert await _described(desk, record, 1) == 1


async def test_a_status_the_object_has_is_not_written(desk: Desk) -> None:
    record = await desk.record()
    news = EventIntent(type="Normal", reason="Updated", note="other nodes")
    async with desk.open():
        await desk.report(record, event=news, shown=True, observedGeneration=7)
        await desk.outcome(record, "Events written")
        assert await _described(desk, record, 1) == 1
        found = await desk.api.get(DNSRECORDS, "default", record.name)
    assert found.resource_version == record.resource_version


async def _described(desk: Desk, record: Object, times: int) -> int:
    """The count of the object's Event, once it is `times`."""
    counts: dict[str, int] = {}
    async with asyncio.timeout(60):
        watching = desk.api.watch(EVENTS, "0")
        async with contextlib.aclosing(watching):  # type: ignore[type-var]
            async for events in watching:
                for reported in (event.object for event in events if event.type in ("ADDED", "MODIFIED")):
                    if reported["involvedObject"].get("uid") == record.uid:
                        counts[reported["metadata"]["name"]] = reported["count"]
                if sum(counts.values()) >= times:
                    break
    return sum(counts.values())
