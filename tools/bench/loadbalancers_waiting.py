"""Many Services that wait for an address: what it costs to look at one of them again."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator
from ipaddress import ip_network

from bus import streams, subjects
from bus.transport.connection import connected
from tools.bench.figures import Spread
from tools.bench.loadbalancers_figures import WaitingFigures
from tools.bench.queue import server
from windowbox.models.refs import SERVICES, ObjectRef
from windowbox.settings.bussettings import Access
from windowbox.settings.lbsettings import Range
from workers.loadbalancer.ipam import allocator, ranges
from workers.loadbalancer.ipam.entries import Holder, Waiter
from workers.loadbalancer.ipam.results import AddressRequest, Allocated
from workers.loadbalancer.ipam.store import AddressStore

_RANGES = ("10.0.0.0/27", "10.0.0.0/24")
_CLUSTERS = 50
_PORTS = ("80/TCP",)
_AT_ONCE = 64
_CHECKS = 100
_SECONDS = 10.0
"""No further check is made after so many seconds."""


async def run(waiting: int, say: Callable[[str], None]) -> list[WaitingFigures]:
    """On ranges without a free address: Services that take any address, and Services that would share one."""
    return [await _measured(prefix, waiting, share, say) for prefix in _RANGES for share in (None, "bench")]


async def _measured(
    prefix: str, waiting: int, share: str | None, say: Callable[[str], None]
) -> WaitingFigures:
    say(f"{waiting} wait for {'a shared' if share else 'an'} address of {prefix}")
    range_ = Range(prefixes=(ip_network(prefix),))
    async with server() as url, connected(Access(url)) as bus:
        await streams.ensure(bus)
        store = AddressStore(bus, [range_], quota=ranges.size(range_, "IPv4"))
        following = asyncio.create_task(store.run(), name="addresses")
        try:
            await store.synced.wait()
            await store.adopt_all([])
            await _filled(store, range_, waiting, share)
            return await _checked(store, prefix, waiting, share)
        finally:
            following.cancel()


async def _filled(store: AddressStore, range_: Range, waiting: int, share: str | None) -> None:
    """Every address is held, and so many Services wait, without a run for each."""
    for number, address in enumerate(ranges.candidates(range_, "IPv4", "bench")):
        holder = Holder(
            cluster=_cluster(number), namespace="bench", name=f"holder-{number}", uid="1", since=1.0,
            share=share, ports=_PORTS,
        )  # fmt: skip
        await store.write(address, (holder,), 0)
    numbers = iter(range(waiting))

    async def join() -> None:
        for number in numbers:
            waiter = Waiter(uid="1", since=float(number), families=("IPv4",), share=share, ports=_PORTS)
            await store.join_queue(_waiter(number), waiter)

    await asyncio.gather(*(join() for _ in range(_AT_ONCE)))
    await store.bucket.catch_up()


async def _checked(store: AddressStore, prefix: str, waiting: int, share: str | None) -> WaitingFigures:
    took, started = list[float](), time.monotonic()
    for number in _spread(waiting):
        request = AddressRequest(_waiter(number), "1", ("IPv4",), share=share, ports=_PORTS)
        before = time.process_time()
        answer = await allocator.allocate(store, request)
        took.append(time.process_time() - before)
        assert not isinstance(answer, Allocated)
        if time.monotonic() > started + _SECONDS:
            break
    return WaitingFigures(
        addresses=f"{prefix}{', shared' if share else ''}",
        waiting=waiting,
        checks=len(took),
        check_ms=Spread.of(took),
        change_ms=_changed(store),
    )


def _changed(store: AddressStore) -> float:
    """CPU for each change of an address that is released and allocated again, and for whom to serve then."""
    key = subjects.of_address(store.holders()[0][0])
    took, held, changes = 0.0, store.bucket.entries[key].value, 0
    while changes < _CHECKS and took < _SECONDS:
        before = time.process_time()
        for value in (None, held):
            store.index.apply(key, value)
            store.servable()
        took, changes = took + time.process_time() - before, changes + 2
    return round(1000 * took / changes, 2)


def _spread(waiting: int) -> Iterator[int]:
    """Some of those that wait, first, last and between."""
    return itertools.islice(itertools.count(0, max(1, waiting // _CHECKS)), min(_CHECKS, waiting))


def _waiter(number: int) -> ObjectRef:
    return ObjectRef(_cluster(number), SERVICES.id, "bench", f"waiter-{number}")


def _cluster(number: int) -> str:
    return f"shoot--bench--{number % _CLUSTERS}"
