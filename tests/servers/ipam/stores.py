"""Address stores for tests, and Services that ask in them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Collection, Iterable
from typing import Any

from bus import streams, subjects
from bus.transport.connection import Bus
from tests.support.running import running, soon
from windowbox.models.loadbalancers import Family
from windowbox.models.refs import RUNTIME, SERVICES, ObjectRef
from windowbox.settings.lbsettings import Range
from workers.loadbalancer.ipam import addressclaims, allocator
from workers.loadbalancer.ipam.addressclaims import Claim
from workers.loadbalancer.ipam.results import AddressRequest, Allocated, Answer, Queued, Rejected
from workers.loadbalancer.ipam.store import AddressStore

V4: tuple[Family, ...] = ("IPv4",)
BOTH: tuple[Family, ...] = ("IPv4", "IPv6")
SMALL, SMALL6 = "10.0.0.16/28", "fd00::10/124"
TWO = "10.0.0.16/31"


def service(name: str, cluster: str = RUNTIME) -> ObjectRef:
    return ObjectRef(cluster, SERVICES.id, "shop", name)


def range_of(*prefixes: str, clusters: tuple[str, ...] = ("*",)) -> Range:
    return Range.model_validate({"prefixes": prefixes, "clusters": clusters})


@contextlib.asynccontextmanager
async def opened(bus: Bus, *ranges: Range | str, quota: int | None = None) -> AsyncIterator[AddressStore]:
    """A store as a process has it, whether or not it may be relied on."""
    found = [range_of(one) if isinstance(one, str) else one for one in ranges]
    store = AddressStore(bus, found, quota)
    async with running(store.run()):
        await soon(store.synced.wait())
        yield store


@contextlib.asynccontextmanager
async def settled(bus: Bus, *prefixes: str, quota: int | None = None) -> AsyncIterator[AddressStore]:
    """A store that may be relied on, of one range for all clusters."""
    async with opened(bus, range_of(*prefixes), quota=quota) as store:
        await addressclaims.adopt_all(store, [])
        yield store


async def allocate(
    store: AddressStore, name: str, families: Collection[Family] = V4, *, cluster: str = RUNTIME, **asked: Any
) -> Answer:
    """Ask for a Service whose uid is its name, by default."""
    asked = {"uid": name, "ports": ["80/TCP"], **asked}
    asked |= {key: tuple(value) for key, value in asked.items() if isinstance(value, list | set)}
    request = AddressRequest(service(name, cluster), families=tuple(families), **asked)
    return await soon(allocator.allocate(store, request))


async def allocated(
    store: AddressStore, name: str, families: Collection[Family] = V4, **asked: Any
) -> list[str]:
    """The addresses of a Service that gets some."""
    answer = await allocate(store, name, families, **asked)
    assert isinstance(answer, Allocated), answer
    return [answer.addresses[of] for of in sorted(answer.addresses)]


async def queued(store: AddressStore, name: str, families: Collection[Family] = V4, **asked: Any) -> Queued:
    """The answer to a Service that has to wait."""
    answer = await allocate(store, name, families, **asked)
    assert isinstance(answer, Queued), answer
    return answer


async def rejected(
    store: AddressStore, name: str, families: Collection[Family] = V4, **asked: Any
) -> Rejected:
    """The answer to a Service that is refused."""
    answer = await allocate(store, name, families, **asked)
    assert isinstance(answer, Rejected), answer
    return answer


async def everybody(store: AddressStore) -> dict[str, list[str]]:
    """By address, the names of those who have it."""
    await store.bucket.catch_up()
    found: dict[str, list[str]] = {}
    for address, holder in store.holders():
        found.setdefault(address, []).append(holder.name)
    return {address: sorted(names) for address, names in found.items()}


def claims(served: Iterable[tuple[str, Iterable[str]]]) -> list[Claim]:
    """What Services have, by what an edge says."""
    return [Claim(service(name), name, tuple(addresses), ("80/TCP",)) for name, addresses in served]


async def purge(bus: Bus) -> None:
    """Remove all entries behind the stores' backs."""
    await bus.purge(f"KV_{streams.ADDRESSES}", subjects.entry(streams.ADDRESSES, ">"))
