"""Routing: from announcements to wishes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from bus import intents, subjects
from bus.clusters.registry import Member, Registry
from bus.messages import (
    BODY,
    OPERATION,
    PREDECESSOR,
    UID,
    VERSION,
    Announcement,
    EventIntent,
    Reason,
    StatusIntent,
    Wish,
)
from bus.transport.connection import ApiError, Bus
from bus.workqueue import forgetting
from bus.workqueue.forgetting import ReportSweep
from bus.workqueue.queue import Queue, Scheduled
from bus.workqueue.routing import PreviousVersion, Router, run_due
from tests.servers.bus.handlers import POOL, waiting
from tests.support.natscluster import on_three
from tests.support.natsserver import NatsServer, emptied
from tests.support.rules import rule
from tests.support.running import eventually, running
from windowbox.errors import Unreachable
from windowbox.models.objects import Object
from windowbox.models.refs import NAMESPACES, ObjectRef


def space(name: str) -> ObjectRef:
    return ObjectRef("runtime", NAMESPACES.id, "", name)


def wishes(*names: str) -> list[str]:
    return sorted(subjects.wish(POOL, subjects.key(space(name))) for name in names)


async def announce(
    bus: Bus, name: str, state: str = "", operation: str = "MODIFIED", before: int = 0, body: str = ""
) -> int:
    headers = {OPERATION: operation, UID: name, VERSION: "1", PREDECESSOR: str(before)}
    data = b"" if body else b'{"metadata": {"name": "%s"}, "status": {"state": "%s"}}' % (
        name.encode(), state.encode(),
    )  # fmt: skip
    sequence = await bus.publish(subjects.seen(space(name)), data, headers | ({BODY: body} if body else {}))
    assert sequence
    return sequence


@dataclass
class All:
    """Every change concerns its object; remembers what each saw before."""

    asks: bool = False
    kinds: tuple[str, ...] = (NAMESPACES.id,)
    owned: tuple[str, ...] = ()
    failures: int = 0
    bugs: bool = False
    seen: list[tuple[str, str | None]] = field(default_factory=list)

    async def keys_for(self, change: Announcement, before: PreviousVersion) -> list[str]:
        if self.failures:
            self.failures -= 1
            raise Unreachable("away")
        if self.bugs:
            raise KeyError("a field that nobody foresaw")
        old = await before.object() if self.asks else None
        state = change.object().status.get("state", "")
        self.seen.append((state, old.status["state"] if old else None))
        return [subjects.without("object", change.stored.subject)]

    def unfinished(self, object: Object) -> bool:
        if self.bugs:
            raise KeyError("a field that nobody foresaw")
        return object.status.get("state") == "unfinished"


async def is_wished(bus: Bus, *names: str) -> bool:
    return sorted(await waiting(bus, "TRIGGERS")) == wishes(*names)


@pytest.fixture(autouse=True)
def _all_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweeps look at what was announced just now, too."""
    monkeypatch.setattr("bus.workqueue.routing._YOUNG", -1.0)


async def test_a_new_pool_receives_the_last_version_of_each_object(bus: Bus) -> None:
    for state in ("first", "second", "third"):
        await announce(bus, "one", state)
    await announce(bus, "two", "only")
    interest = All()
    async with running(Router(bus, Queue(bus, POOL), interest).run()):
        await eventually(lambda: is_wished(bus, "one", "two"))
    assert sorted(interest.seen) == [("only", None), ("third", None)]


@rule("V-4")
async def test_a_change_comes_with_the_version_before(bus: Bus) -> None:
    interest = All(asks=True)
    async with running(Router(bus, Queue(bus, POOL), interest).run()):

        async def announced(name: str, state: str, before: int = 0) -> int:
            seen = len(interest.seen)
            sequence = await announce(bus, name, state, before=before)
            await eventually(lambda: len(interest.seen) > seen)
            return sequence

        first = await announced("web", "first")
        await announced("web", "second", first)
        elsewhere = await announced("other", "third", 999)
        await announced("web", "fourth", elsewhere)
    assert interest.seen == [("first", None), ("second", "first"), ("third", None), ("fourth", None)]


async def test_checks_that_may_wait_come_one_after_the_other(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bus.workqueue.routing._SOON", 3600.0)
    monkeypatch.setattr("bus.workqueue.routing._APART", 60.0)
    names, queue = ("one", "three", "two"), Queue(bus, POOL)
    # What is scheduled already is not put off.
    await queue.schedule(subjects.key(space("two")), Wish(reason=Reason.RETRY), 600)

    def defers(change: Announcement) -> bool:
        return change.operation == "LISTED"

    async with running(Router(bus, queue, All(owned=(NAMESPACES.id,)), defers=defers).run()):
        for name in (*names, "one"):
            await announce(bus, name, operation="LISTED")
        await announce(bus, "urgent")
        await eventually(lambda: is_wished(bus, "urgent"))
        await eventually(lambda: is_scheduled(bus, *names))
        await eventually(lambda: nothing_in_hand(bus))
    stored = [await bus.last("LATER", subjects.later(POOL, subjects.key(space(name)))) for name in names]
    one, three, two = (Scheduled.of(later) for later in stored if later)
    assert {later.wish.drift for later in (one, three, two)} == {True}
    assert two.wish.reported
    # Several are routed at once, so any may be the first. The second event of `one` takes no place.
    first, second = sorted((one.due, three.due))
    assert (second - first).total_seconds() in (pytest.approx(60, abs=5), pytest.approx(120, abs=5))
    assert 2970 < (first - two.due).total_seconds() < 3090


async def test_a_run_drops_what_was_scheduled_before_it_alone(bus: Bus) -> None:
    queue, key = Queue(bus, POOL), subjects.key(space("web"))
    await queue.schedule(key, Wish(reason=Reason.RETRY), 3600)
    scheduled = await bus.now()
    await queue.unschedule(key, scheduled - 1)
    assert await is_scheduled(bus, "web")
    await queue.unschedule(key, scheduled + 1)
    assert not await is_scheduled(bus, "web")


@rule("V-9")
async def test_a_change_that_failed_to_route_is_redelivered(bus: Bus) -> None:
    interest = All(failures=1)
    await announce(bus, "web")
    async with running(Router(bus, Queue(bus, POOL), interest).run()):
        await eventually(lambda: is_wished(bus, "web"))
    assert interest.failures == 0


@on_three()
async def test_routers_share_the_changes(bus: Bus) -> None:
    interests = [All(), All()]
    async with running(*(Router(bus, Queue(bus, POOL), interest).run() for interest in interests)):
        names = [f"web-{number}" for number in range(30)]
        for name in names:
            await announce(bus, name)
        await eventually(lambda: is_wished(bus, *names))
    assert sum(len(interest.seen) for interest in interests) == 30


async def test_a_router_continues_with_another_store(nats: NatsServer, nats_bus: Bus) -> None:
    async with running(Router(nats_bus, Queue(nats_bus, POOL), All()).run()):
        await announce(nats_bus, "before")
        await eventually(lambda: is_wished(nats_bus, "before"))
        await emptied(nats, nats_bus)
        await announce(nats_bus, "after")
        await eventually(lambda: is_wished(nats_bus, "after"))


@rule("V-3")
async def test_the_sweep_enqueues_unfinished_objects(bus: Bus) -> None:
    router = Router(bus, Queue(bus, POOL), All())
    await announce(bus, "left", "unfinished")
    await announce(bus, "finished-since", "unfinished")
    await announce(bus, "finished-since", "finished")
    await announce(bus, "gone", "unfinished")
    await announce(bus, "gone", operation="DELETED")
    await announce(bus, "too-large", body="omitted")
    await announce(bus, "scheduled", "unfinished")
    await Queue(bus, POOL).schedule(subjects.key(space("scheduled")), Wish(reason=Reason.RETRY), 60)
    async with running(router.sweep(0.05)):
        await eventually(lambda: is_wished(bus, "left"))
        # The next rounds look at what has come since.
        await announce(bus, "newer", "unfinished")
        await eventually(lambda: is_wished(bus, "left", "newer"))


async def test_a_sweep_leaves_young_objects_to_the_next_one(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    router = Router(bus, Queue(bus, POOL), All())
    sequence = await announce(bus, "one", "unfinished")
    monkeypatch.setattr("bus.workqueue.routing._YOUNG", 3600.0)
    assert await router._sweep_objects(0) == sequence - 1
    assert await is_wished(bus)
    monkeypatch.setattr("bus.workqueue.routing._YOUNG", -1.0)
    assert await router._sweep_objects(sequence - 1) == sequence
    assert await is_wished(bus, "one")


async def test_a_sweep_yields_after_each_large_object(bus: Bus) -> None:
    turns = 0
    seen: list[int] = []

    class Watching(All):
        def unfinished(self, object: Object) -> bool:
            seen.append(turns)
            return False

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    for number in range(30):
        await announce(bus, f"large-{number}", "x" * 100_000)
    async with running(take_turns(), Router(bus, Queue(bus, POOL), Watching()).sweep(60)):
        await eventually(lambda: len(seen) == 30)
    assert len(set(seen)) == 30


async def test_a_sweep_checks_the_drift_of_unknown_owners(bus: Bus) -> None:
    """What it had made may have been deleted while the bus knew neither."""
    first = await announce(bus, "known", "finished", "ADDED")
    await announce(bus, "known", "finished", "LISTED", before=first)
    await announce(bus, "unknown", "finished", "LISTED")
    await announce(bus, "gone", "finished", "LISTED")
    await announce(bus, "gone", operation="DELETED")
    mapping = All(owned=("pools.example.com",))
    async with running(Router(bus, Queue(bus, POOL), mapping).sweep(0.05)):
        await eventually(lambda: is_wished(bus, "unknown"))
        await announce(bus, "newer", "finished", "LISTED")
        await eventually(lambda: is_wished(bus, "unknown", "newer"))
    found = await bus.last("TRIGGERS", subjects.wish(POOL, subjects.key(space("unknown"))))
    assert found
    assert Wish.decoded(found.data).drift


async def test_a_sweep_starts_over_in_another_store(nats: NatsServer, nats_bus: Bus) -> None:
    async with running(Router(nats_bus, Queue(nats_bus, POOL), All()).sweep(0.2)):
        await announce(nats_bus, "before", "unfinished")
        await eventually(lambda: is_wished(nats_bus, "before"))
        await emptied(nats, nats_bus)
        await announce(nats_bus, "after", "unfinished")
        for number in range(5):
            await announce(nats_bus, f"finished-{number}", "finished")
        await eventually(lambda: is_wished(nats_bus, "after"))


@rule("V-9")
async def test_a_change_whose_mapping_fails_is_routed_to_its_own_object(bus: Bus) -> None:
    await announce(bus, "web")
    async with running(Router(bus, Queue(bus, POOL), All(bugs=True)).run()):
        await eventually(lambda: is_wished(bus, "web"))
        await eventually(lambda: nothing_in_hand(bus))


async def test_a_change_of_another_kind_whose_mapping_fails_is_settled(bus: Bus) -> None:
    await announce(bus, "web")
    interest = All(bugs=True, kinds=("others.example.com", NAMESPACES.id))
    async with running(Router(bus, Queue(bus, POOL), interest).run()):
        await eventually(lambda: nothing_in_hand(bus))
        assert await is_wished(bus)


@pytest.mark.parametrize("bugs", [False, True], ids=["reported-at-once", "cannot-be-reported"])
async def test_an_ignored_change_is_settled_at_once(bus: Bus, bugs: bool) -> None:
    def ignores(change: Announcement) -> bool:
        if bugs:
            raise KeyError("a field that nobody foresaw")
        return change.object().name == "ours"

    await announce(bus, "ours")
    await announce(bus, "web")
    interest = All()
    async with running(Router(bus, Queue(bus, POOL), interest, ignores=ignores).run()):
        await eventually(lambda: is_wished(bus, "web", *(["ours"] if bugs else [])))
        await eventually(lambda: nothing_in_hand(bus))
    assert len(interest.seen) == (2 if bugs else 1)


async def test_a_sweep_enqueues_objects_that_cannot_be_judged(bus: Bus) -> None:
    await announce(bus, "web")
    async with running(Router(bus, Queue(bus, POOL), All(bugs=True)).sweep(0.05)):
        await eventually(lambda: is_wished(bus, "web"))


async def test_a_due_wish_that_cannot_be_read_is_a_wish(bus: Bus) -> None:
    await bus.publish(subjects.due(POOL, subjects.key(space("web"))), b"nonsense")
    async with running(run_due(bus, Queue(bus, POOL))):
        await eventually(lambda: is_wished(bus, "web"))
        await eventually(lambda: nothing_is_due(bus))


EVENT = EventIntent(type="Normal", reason="Deleted", note="deleted")
"""Reports that stay when their object `web` is deleted, beside those that go."""
KEPT = {
    "of a successor": StatusIntent(uid="successor", patch={"a": 1}),
    "with an orphan": StatusIntent(uid="web", patch={"a": 1}, orphans=({"metadata": {"uid": "web"}},)),
    "with Events to write": StatusIntent(uid="web", patch={}, events=(EVENT,)),
}
FORGOTTEN = {
    "written": StatusIntent(uid="web", patch={"a": 1}),
    "with a memo": StatusIntent(uid="web", patch={"a": 1}, shown=True, memo={"step": 3}),
    "with Events of a status": StatusIntent(uid="web", patch={"a": 1}, events=(EVENT,)),
}


@pytest.mark.parametrize("report", [*KEPT, *FORGOTTEN])
async def test_a_deleted_object_is_forgotten(bus: Bus, report: str) -> None:
    queue, key = Queue(bus, POOL), subjects.key(space("web"))
    intent = (KEPT | FORGOTTEN)[report]
    async with running(Router(bus, queue, All()).run()):
        await announce(bus, "web")
        for about in ("web", "stays"):
            await queue.schedule(subjects.key(space(about)), Wish(reason=Reason.DUE), 3600)
            await intents.report(bus, subjects.key(space(about)), intent, 0)
        await announce(bus, "web", operation="DELETED")
        await eventually(lambda: is_scheduled(bus, "stays"))
        await eventually(lambda: nothing_in_hand(bus))
    assert ((await intents.last(bus, key)).intent is None) == (report in FORGOTTEN)
    assert (await intents.last(bus, subjects.key(space("stays")))).intent == intent


async def test_a_late_deletion_forgets_no_wish_of_the_next_object(bus: Bus) -> None:
    queue, key = Queue(bus, POOL), subjects.key(space("web"))
    for operation in ("ADDED", "DELETED", "ADDED"):
        await announce(bus, "web", operation=operation)
    await queue.schedule(key, Wish(reason=Reason.DUE), 3600)
    await forgetting.forget(bus, queue, key, "web")
    assert await is_scheduled(bus, "web")


async def test_a_sweep_forgets_reports_without_an_object(bus: Bus) -> None:
    """The deletion was announced, and its announcement forgotten, while no worker ran."""
    elsewhere = {name: ObjectRef(name, NAMESPACES.id, "", "web") for name in ("lost", "left", "member")}
    refs = [space("there"), space("deleted"), space("orphaned"), *elsewhere.values()]
    for ref in refs:
        orphans = ({"metadata": {"uid": "x"}},) if ref.name == "orphaned" else ()
        await intents.report(
            bus, subjects.key(ref), StatusIntent(uid="x", patch={"a": 1}, orphans=orphans), 0
        )
    await bus.publish(subjects.intent(subjects.key(space("unreadable"))), b"nonsense")
    await announce(bus, "there")
    await bus.publish(subjects.listed("runtime", NAMESPACES.id), b"")
    for name in ("left", "member"):
        await Registry(bus).join(Member(id=name))
    await Registry(bus).leave("left")
    async with running(Router(bus, Queue(bus, POOL), All()).sweep(0.05)):
        for ref in (space("deleted"), elsewhere["left"]):
            await eventually(lambda ref=ref: is_unreported(bus, ref))  # type: ignore[misc]
        # A bus that has lost its objects is filled again; it knows no deletion until then.
        for ref in (space("there"), space("orphaned"), elsewhere["lost"], elsewhere["member"]):
            assert not await is_unreported(bus, ref)


async def test_a_sweep_does_not_forget_what_one_look_misses(bus: Bus) -> None:
    await intents.report(bus, subjects.key(space("web")), StatusIntent(uid="web", patch={"a": 1}), 0)
    await bus.publish(subjects.listed("runtime", NAMESPACES.id), b"")
    sweep = ReportSweep(bus, NAMESPACES.id)
    await sweep.step()
    await announce(bus, "web")
    for _ in range(3):
        await sweep.step()
    assert not await is_unreported(bus, space("web"))


async def is_scheduled(bus: Bus, *names: str) -> bool:
    return await waiting(bus, "LATER") == [subjects.later(POOL, subjects.key(space(name))) for name in names]


async def is_unreported(bus: Bus, ref: ObjectRef) -> bool:
    return (await intents.last(bus, subjects.key(ref))).intent is None


async def nothing_in_hand(bus: Bus) -> bool:
    """Whether all changes have been handed to the router, and settled."""
    try:
        info = await bus.api(f"CONSUMER.INFO.OBJECTS.route-{POOL}")
    except ApiError:
        return False
    return (info["num_pending"], info["num_ack_pending"]) == (0, 0)


async def nothing_is_due(bus: Bus) -> bool:
    return not await waiting(bus, "LATER")
