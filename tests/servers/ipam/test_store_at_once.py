"""Many Services at once, in several processes; and the book lost in the middle of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from bus import streams
from bus.transport.connection import Bus
from tests.servers.ipam import asking
from tests.servers.ipam.asking import AT_ONCE, Status
from tests.servers.ipam.stores import claims, everybody, opened, purge
from tests.support.forked import Piped
from tests.support.natsserver import NatsServer, emptied
from tests.support.rules import rule
from tests.support.running import running, soon
from windowbox.errors import WindowboxError
from workers.loadbalancer.ipam import addressclaims
from workers.loadbalancer.ipam.store import AddressStore

PREFIX = "10.0.0.0/22"
PROCESSES = 4

each_number = pytest.mark.parametrize("number", [100, pytest.param(500, marks=pytest.mark.long)])
"""Of Services."""


async def taken_by_processes(
    url: str,
    status: Status,
    number: int,
    half: Callable[[], Awaitable[None]] | None = None,
    workers: int = PROCESSES,
) -> Status:
    """Let all Services ask at once, and return what their status shows then. `half` is called midway."""
    halfway, everyone = asyncio.Event(), names(number)
    shown = dict(status)

    async def run(some: list[str]) -> None:
        process = Piped(asking.run, url, PREFIX)
        await process.start()
        try:
            await read(process, {name: status.get(name, []) for name in some})
        finally:
            process.kill()
            await process.wait()

    async def read(process: Piped, request: Status) -> None:
        process.say(json.dumps(request).encode())
        async for line in process.lines:
            name, shown[name] = json.loads(line)
            reported.append(name)
            if len(reported) >= number // 3:
                halfway.set()

    async def interfere() -> None:
        await halfway.wait()
        if half:
            await half()

    reported: list[str] = []
    shown_to_owner.append(shown)
    async with asyncio.timeout(120):
        await asyncio.gather(interfere(), *(run(everyone[one::workers]) for one in range(workers)))
    return shown


def names(number: int) -> list[str]:
    return [f"web-{one}" for one in range(number)]


shown_to_owner: list[Status] = []
"""The status of all Services, as the API server would show it."""


@pytest.fixture(autouse=True)
def _nobody_has_an_address() -> None:
    shown_to_owner.clear()


async def own(store: AddressStore) -> None:
    """What the owner of the edge does: rebuild the book whenever that is needed."""
    changed = asyncio.Event()
    store.on_change(changed.set)
    while True:
        changed.clear()
        if store.needs_adoption():
            try:
                await addressclaims.adopt_all(
                    store, claims(shown_to_owner[-1].items() if shown_to_owner else [])
                )
            except WindowboxError:
                await asyncio.sleep(0.1)  # as the owner does, before it tries again
                continue
        await changed.wait()


def distinct(status: Status, number: int) -> bool:
    addresses = [address for shown in status.values() for address in shown]
    return len(addresses) == len(set(addresses)) == number


def owners(status: Status) -> dict[str, list[str]]:
    return {address: [name] for name, shown in status.items() for address in shown}


@each_number
@rule("LB-11-5")
async def test_four_processes_allocate_distinct_addresses(bus: Bus, nats_url: str, number: int) -> None:
    async def last() -> int:
        return int((await bus.api(f"STREAM.INFO.KV_{streams.ADDRESSES}"))["state"]["last_seq"])

    async with opened(bus, PREFIX) as store, running(own(store)):
        status = await taken_by_processes(nats_url, {}, number)
        assert distinct(status, number)
        before = await last()
        assert await taken_by_processes(nats_url, status, number, workers=1) == status
        assert await taken_by_processes(nats_url, {}, number, workers=1) == status
        assert await last() == before, "asking again writes nothing"
        assert await everybody(store) == owners(status)


async def purged(bus: Bus, _: NatsServer) -> None:
    await purge(bus)


async def made_again(bus: Bus, _: NatsServer) -> None:
    await bus.api(f"STREAM.DELETE.KV_{streams.ADDRESSES}")
    await streams.ensure(bus)


async def wiped(bus: Bus, nats: NatsServer) -> None:
    await emptied(nats, bus)


@each_number
@rule("LB-11-5")
@pytest.mark.parametrize(
    "lose",
    [
        pytest.param(purged, id="purged", marks=pytest.mark.long),
        pytest.param(made_again, id="made_again", marks=pytest.mark.long),
        pytest.param(wiped, id="wiped"),
    ],
)
async def test_a_store_lost_in_the_middle_is_rebuilt_from_status(
    nats: NatsServer, nats_bus: Bus, lose: Callable[[Bus, NatsServer], Awaitable[None]], number: int
) -> None:
    async with opened(nats_bus, PREFIX) as store, running(own(store)):
        status = await taken_by_processes(nats.url, {}, number, half=lambda: lose(nats_bus, nats))
        again = await soon(taken_by_processes(nats.url, status, number, workers=1))
        assert distinct(again, number)
        # An address that was allocated just before the loss may be another's by now.
        assert sum(again[name] != status[name] for name in names(number)) <= PROCESSES * AT_ONCE
        assert await everybody(store) == owners(again)
