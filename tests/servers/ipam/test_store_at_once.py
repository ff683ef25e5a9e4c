"""Many Services at once, in several processes; and the book lost in the middle of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable

import pytest

from bus import streams
from bus.transport.connection import Bus
from sandbox import processes
from tests.servers.ipam.asking import AT_ONCE, Status
from tests.servers.ipam.stores import claims, everybody, opened, purge
from tests.support.natsserver import NatsServer, emptied
from tests.support.rules import rule
from tests.support.running import running, soon
from windowbox.errors import WindowboxError
from workers.loadbalancer.ipam import addressclaims
from workers.loadbalancer.ipam.store import AddressStore

PREFIX = "10.0.0.0/22"
NAMES = [f"web-{number}" for number in range(500)]
PROCESSES = 4


async def taken_by_processes(
    url: str, status: Status, half: Callable[[], Awaitable[None]] | None = None
) -> Status:
    """Let all Services ask at once, and return what their status shows then. `half` is called midway."""
    halfway = asyncio.Event()
    shown = dict(status)

    async def run(names: list[str]) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.servers.ipam.asking", url, PREFIX,
            stdin=PIPE, stdout=PIPE, preexec_fn=processes.dying_with_parent(),
        )  # fmt: skip
        try:
            await read(process, {name: status.get(name, []) for name in names})
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def read(process: Process, request: Status) -> None:
        assert process.stdin
        assert process.stdout
        process.stdin.write(json.dumps(request).encode() + b"\n")
        async for line in process.stdout:
            name, shown[name] = json.loads(line)
            reported.append(name)
            if len(reported) >= len(NAMES) // 3:
                halfway.set()

    async def interfere() -> None:
        await halfway.wait()
        if half:
            await half()

    reported: list[str] = []
    shown_to_owner.append(shown)
    async with asyncio.timeout(120):
        await asyncio.gather(interfere(), *(run(NAMES[one::PROCESSES]) for one in range(PROCESSES)))
    return shown


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


def distinct(status: Status) -> bool:
    addresses = [address for shown in status.values() for address in shown]
    return len(addresses) == len(set(addresses)) == len(NAMES)


def owners(status: Status) -> dict[str, list[str]]:
    return {address: [name] for name, shown in status.items() for address in shown}


@pytest.mark.slow
@rule("LB-11-5")
async def test_four_processes_allocate_five_hundred_distinct_addresses(bus: Bus, nats_url: str) -> None:
    async def last() -> int:
        return int((await bus.api(f"STREAM.INFO.KV_{streams.ADDRESSES}"))["state"]["last_seq"])

    async with opened(bus, PREFIX) as store, running(own(store)):
        status = await taken_by_processes(nats_url, {})
        assert distinct(status)
        before = await last()
        assert await taken_by_processes(nats_url, status) == status
        assert await taken_by_processes(nats_url, {}) == status
        assert await last() == before, "asking again writes nothing"
        assert await everybody(store) == owners(status)


async def purged(bus: Bus, _: NatsServer) -> None:
    await purge(bus)


async def made_again(bus: Bus, _: NatsServer) -> None:
    await bus.api(f"STREAM.DELETE.KV_{streams.ADDRESSES}")
    await streams.ensure(bus)


async def wiped(bus: Bus, nats: NatsServer) -> None:
    await emptied(nats, bus)


@pytest.mark.slow
@rule("LB-11-5")
@pytest.mark.parametrize("lose", [purged, made_again, wiped])
async def test_a_store_lost_in_the_middle_is_rebuilt_from_status(
    nats: NatsServer, nats_bus: Bus, lose: Callable[[Bus, NatsServer], Awaitable[None]]
) -> None:
    async with opened(nats_bus, PREFIX) as store, running(own(store)):
        status = await taken_by_processes(nats.url, {}, half=lambda: lose(nats_bus, nats))
        again = await soon(taken_by_processes(nats.url, status))
        assert distinct(again)
        # An address that was allocated just before the loss may be another's by now.
        assert sum(again[name] != status[name] for name in NAMES) <= PROCESSES * AT_ONCE
        assert await everybody(store) == owners(again)
