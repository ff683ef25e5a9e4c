"""Whatever Services ask, in whatever order: no address has two owners, and nobody waits beside a free one."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import cast

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bus import streams
from bus.transport.connection import connected
from tests.servers.ipam.stores import allocate, opened, range_of, service, settled
from tests.support.rules import rule
from tests.support.running import soon
from windowbox.settings.bussettings import Access
from workers.loadbalancer.ipam.results import Allocated, Queued, Released
from workers.loadbalancer.ipam.store import AddressStore

PREFIX = "10.0.0.16/30"
ROOM = 4
NAMES = ("a", "b", "c", "d", "e", "f", "g")

REQUESTS = st.tuples(
    st.just("take"),
    st.sampled_from(NAMES),
    st.fixed_dictionaries(
        {"share": st.sampled_from([None, None, "word"]), "port": st.sampled_from([80, 443])}
    ),
)
NOTHING: dict[str, object] = {}
LEAVING = st.tuples(st.sampled_from(["release", "keep", "expire"]), st.sampled_from(NAMES), st.just(NOTHING))
STEPS = st.lists(st.one_of(REQUESTS, LEAVING), min_size=5, max_size=40)


@dataclass
class Model:
    """What must be true, told by what the book answered."""

    had: dict[str, str] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)
    asked: dict[str, dict[str, object]] = field(default_factory=dict)

    def alone(self, name: str) -> bool:
        return list(self.had.values()).count(self.had[name]) == 1


@rule("LB-11-3")
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_any_order_of_asking_and_leaving_keeps_the_book_in_order(nats_url: str, steps: list[object]) -> None:
    asyncio.run(_simulated(nats_url, cast("list[tuple[str, str, dict[str, object]]]", steps)))


async def _simulated(url: str, steps: Iterable[tuple[str, str, dict[str, object]]]) -> None:
    async with connected(Access(url)) as bus:
        await streams.ensure(bus)
        async with settled(bus, PREFIX) as one, opened(bus, range_of(PREFIX)) as two:
            await two.bucket.catch_up()
            try:
                await _play((one, two), steps)
            finally:
                await bus.api(f"STREAM.PURGE.KV_{streams.ADDRESSES}")


async def _play(
    books: tuple[AddressStore, AddressStore], steps: Iterable[tuple[str, str, dict[str, object]]]
) -> None:
    model = Model()
    for number, (what, name, asked) in enumerate(steps):
        store = books[number % 2]
        if what == "take":
            woken = await _take(store, model, name, asked)
        elif name in model.asked:
            woken = await _leave(store, model, what, name)
        else:
            continue
        for other in woken:
            await _take(store, model, other, model.asked[other])
        await _check(store, model)


async def _take(store: AddressStore, model: Model, name: str, asked: dict[str, object]) -> list[str]:
    model.asked[name] = asked
    before = dict(model.had)
    answer = await allocate(store, name, share=asked["share"], ports=[f"{asked['port']}/TCP"])
    if isinstance(answer, Allocated):
        address = answer.addresses["IPv4"]
        if name in before and model.alone(name):
            assert address == before[name], "moved without a reason"
        model.had[name] = address
        model.waiting.discard(name)
        model.kept.discard(name)
    elif isinstance(answer, Queued) and name not in model.had:
        model.waiting.add(name)
    return [ref.name for ref in answer.wake]


async def _leave(store: AddressStore, model: Model, what: str, name: str) -> list[str]:
    released = Released()
    if what == "keep":
        released = await soon(store.keep(service(name), name, until=1000.0))
        model.waiting.discard(name)
        model.kept |= {name} & model.had.keys()
    elif what == "expire" and name in model.kept:
        await store.bucket.catch_up()
        released = await soon(store.release_expired(service(name), now=1000.0))
        model.kept.discard(name)
        assert released.addresses == (model.had.pop(name),)
    elif what == "release":
        released = await soon(store.release(service(name)))
        model.waiting.discard(name)
        model.kept.discard(name)
        had = model.had.pop(name, None)
        assert released.addresses == ((had,) if had else ())
    return [ref.name for ref in released.wake]


async def _check(store: AddressStore, model: Model) -> None:
    await store.bucket.catch_up()
    found = {holder.name: address for address, holder in store.holders()}
    assert found == model.had
    taken = Counter(found.values())
    assert len(taken) <= ROOM
    for address in taken:
        can_share = [h for a, h in store.holders() if a == address]
        ports = [port for holder in can_share for port in holder.ports]
        assert len(ports) == len(set(ports))
        assert len(can_share) == 1 or {h.share for h in can_share} == {"word"}
    waiting = {ref.name for ref in store.index.waiters}
    assert model.waiting <= waiting | model.had.keys()
    assert not model.waiting or len(taken) == ROOM, "somebody waits beside a free address"
