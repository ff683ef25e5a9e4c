"""Many Services that wait for an address: the cost of one re-check, and of one change of an address."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from ipaddress import ip_network

from bus import streams, subjects
from bus.transport.connection import connected
from tools.bench.bus.emptyruns import bus_server
from tools.bench.client import background, each
from tools.bench.report import Report, Spread, say, table
from windowbox.models.refs import SERVICES, ObjectRef
from windowbox.settings.bussettings import Access
from windowbox.settings.lbsettings import Range
from workers.loadbalancer.ipam import addressclaims, allocator, ranges
from workers.loadbalancer.ipam.entries import Holder, Waiter
from workers.loadbalancer.ipam.results import AddressRequest, Allocated
from workers.loadbalancer.ipam.store import AddressStore

_RANGES = ("10.0.0.0/27", "10.0.0.0/24")
_CLUSTERS = 50
_PORTS = ("80/TCP",)
_CHECKS = 100
_SECONDS = 10.0
"""No further check starts after so many seconds."""


@dataclass(frozen=True)
class WaitingFigures:
    """Many Services that wait for an address of one range: one result of `bench loadbalancer --waiting`."""

    addresses: str
    waiting: int
    checks: int
    check_ms: Spread
    """CPU of this process for one re-check of a waiting Service."""
    change_ms: float
    """CPU for noting a released or allocated address, and for finding the Services it can serve."""


async def measure(waiting: int) -> Report:
    """Measure ranges without a free address, with Services that take any address, or that would share one."""
    found = [await _measured(prefix, waiting, share) for prefix in _RANGES for share in (None, "bench")]
    shown = table(
        "Services that wait for an address; CPU, ms",
        found,
        {
            "addresses": lambda one: one.addresses,
            "waiting": lambda one: str(one.waiting),
            "re-checks": lambda one: str(one.checks),
            "p50 / p95 / max": lambda one: f"{one.check_ms.p50} / {one.check_ms.p95} / {one.check_ms.max}",
            "one change": lambda one: f"{one.change_ms:.2f}",
        },
    )
    return Report(found, [shown])


async def _measured(prefix: str, waiting: int, share: str | None) -> WaitingFigures:
    say(f"{waiting} wait for {'a shared' if share else 'an'} address of {prefix}")
    range_ = Range(prefixes=(ip_network(prefix),))
    async with bus_server() as url, connected(Access(url)) as bus:
        await streams.ensure(bus)
        store = AddressStore(bus, [range_], quota=ranges.size(range_, "IPv4"))
        async with background(store.run(), "addresses"):
            await store.synced.wait()
            await addressclaims.adopt_all(store, [])
            for number, address in enumerate(ranges.candidates(range_, "IPv4", "bench")):
                holder = Holder(
                    cluster=_cluster(number), namespace="bench", name=f"holder-{number}", uid="1", since=1.0,
                    share=share, ports=_PORTS,
                )  # fmt: skip
                await store.write(address, (holder,), 0)

            async def wait(number: int) -> None:
                waiter = Waiter(uid="1", since=float(number), families=("IPv4",), share=share, ports=_PORTS)
                await store.join_queue(_waiter(number), waiter)

            await each(range(waiting), wait)
            await store.bucket.catch_up()
            took, started = list[float](), time.monotonic()
            # Re-check the first and the last Services in the queue, and some between.
            numbers = itertools.count(0, max(1, waiting // _CHECKS))
            for number in itertools.islice(numbers, min(_CHECKS, waiting)):
                request = AddressRequest(_waiter(number), "1", ("IPv4",), share=share, ports=_PORTS)
                before = time.process_time()
                answer = await allocator.allocate(store, request)
                took.append(time.process_time() - before)
                assert not isinstance(answer, Allocated)
                if time.monotonic() > started + _SECONDS:
                    break
            change_ms = _changed(store)
    return WaitingFigures(
        addresses=f"{prefix}{', shared' if share else ''}",
        waiting=waiting,
        checks=len(took),
        check_ms=Spread.of(took),
        change_ms=change_ms,
    )


def _changed(store: AddressStore) -> float:
    """CPU milliseconds for each change of an address that is released and allocated again."""
    key = subjects.of_address(store.holders()[0][0])
    took, held, changes = 0.0, store.bucket.entries[key].value, 0
    while changes < _CHECKS and took < _SECONDS:
        before = time.process_time()
        for value in (None, held):
            store.index.apply(key, value)
            store.servable()
        took, changes = took + time.process_time() - before, changes + 2
    return round(1000 * took / changes, 2)


def _waiter(number: int) -> ObjectRef:
    return ObjectRef(_cluster(number), SERVICES.id, "bench", f"waiter-{number}")


def _cluster(number: int) -> str:
    return f"shoot--bench--{number % _CLUSTERS}"
