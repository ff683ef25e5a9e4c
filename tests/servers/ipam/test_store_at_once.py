"""Many Services at once, in several processes; and the book lost in the middle of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable

import pytest

from bus import streams, subjects
from bus.transport.connection import Bus, connected
from sandbox import processes
from tests.servers.ipam.stores import claims, everybody, opened, range_of
from tests.support.natsserver import NatsServer, made_anew
from tests.support.rules import rule
from tests.support.running import eventually, running, soon
from windowbox.errors import WindowboxError
from windowbox.settings.bussettings import Access
from workers.loadbalancer.ipam import addressclaims
from workers.loadbalancer.ipam.store import AddressStore

PREFIX = "10.0.0.0/22"
NAMES = [f"web-{number}" for number in range(500)]
PROCESSES = 4

Status = dict[str, list[str]]


async def taken_by_processes(
    url: str, status: Status, half: Callable[[], Awaitable[None]] | None = None
) -> Status:
    """Let all Services ask at once, and return what their status shows then. `half` is called midway."""
    halfway = asyncio.Event()
    shown = dict(status)

    async def run(names: list[str]) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.servers.ipam.allocating", url, PREFIX,
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
            said = json.loads(line)
            shown[said["name"]] = said["addresses"]
            told.append(said["name"])
            if len(told) >= len(NAMES) // 3:
                halfway.set()

    async def interfere() -> None:
        await halfway.wait()
        if half:
            await half()

    told: list[str] = []
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


@pytest.mark.slow
@rule("LB-11-5")
async def test_four_processes_allocate_five_hundred_distinct_addresses(bus: Bus, nats_url: str) -> None:
    async with opened(bus, range_of(PREFIX)) as store, running(own(store)):
        status = await taken_by_processes(nats_url, {})
        assert distinct(status)
        before = (await state(bus))["last_seq"]
        assert await taken_by_processes(nats_url, status) == status
        assert await taken_by_processes(nats_url, {}) == status
        assert (await state(bus))["last_seq"] == before
        assert await everybody(store) == {a: [name] for name, shown in sorted(status.items()) for a in shown}


async def state(bus: Bus) -> dict[str, int]:
    found: dict[str, int] = (await bus.api(f"STREAM.INFO.KV_{streams.ADDRESSES}"))["state"]
    return found


async def purged(bus: Bus) -> None:
    await bus.purge(f"KV_{streams.ADDRESSES}", subjects.entry(streams.ADDRESSES, ">"))


async def made_again(bus: Bus) -> None:
    await bus.api(f"STREAM.DELETE.KV_{streams.ADDRESSES}")
    await streams.ensure(bus)


@pytest.mark.slow
@rule("LB-11-5")
@pytest.mark.parametrize("lose", [purged, made_again], ids=["purged", "made-again"])
async def test_a_bucket_lost_in_the_middle_is_rebuilt_from_status(
    bus: Bus, nats_url: str, lose: Callable[[Bus], Awaitable[None]]
) -> None:
    async with opened(bus, range_of(PREFIX)) as store, running(own(store)):
        status = await taken_by_processes(nats_url, {}, half=lambda: lose(bus))
        await soon(assert_all_have_one(store, nats_url, status))


@pytest.mark.slow
@rule("LB-11-5")
async def test_a_store_lost_in_the_middle_is_rebuilt_from_status(nats: NatsServer) -> None:
    async with connected(Access(nats.url)) as bus:
        await eventually(lambda: made_anew(bus))

        async def lose() -> None:
            nats.wipe()
            nats.start()
            await eventually(lambda: made_anew(bus))

        async with opened(bus, range_of(PREFIX)) as store, running(own(store)):
            status = await taken_by_processes(nats.url, {}, half=lose)
            await soon(assert_all_have_one(store, nats.url, status))


async def assert_all_have_one(store: AddressStore, url: str, status: Status) -> None:
    """Whoever was told of its address just when the book was lost may learn that it is another's by now."""
    again = await taken_by_processes(url, status)
    assert distinct(again)
    moved = [name for name in NAMES if again[name] != status[name]]
    assert len(moved) <= PROCESSES * 64
    assert await everybody(store) == {
        a: [n] for a, n in sorted((a, n) for n, shown in again.items() for a in shown)
    }
