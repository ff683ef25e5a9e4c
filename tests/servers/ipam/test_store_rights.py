"""Workers may write the address store; other roles may not."""

from __future__ import annotations

import asyncio
import logging

import pytest

from bus import streams
from bus.leases.leases import Leases
from bus.permissions import Role
from bus.transport.connection import connected
from tests.servers.ipam.stores import allocate, allocated, claims, opened, range_of, service
from tests.support.roles import RoleServer
from tests.support.running import running, soon
from workers.loadbalancer.ipam import addressclaims

TWO = "10.0.0.16/31"


async def test_a_worker_may_do_all_that_the_book_asks_of_it(
    roles: RoleServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with connected(roles.access("watcher")) as watcher:
        await streams.ensure(watcher)
    async with connected(roles.access("worker")) as bus, opened(bus, range_of(TWO)) as store:
        await allocate(store, "web")
        await addressclaims.adopt_all(store, claims([("api", ["10.0.0.16"])]))
        assert await allocated(store, "web") == ["10.0.0.17"]
        await allocate(store, "db")
        await store.keep(service("web"), "web", until=1.0)
        assert (await store.release(service("web"))).wake == (service("db"),)
        await hold(Leases(bus, "me", "work"), "edge")
    assert [r.message for r in caplog.records if r.levelno >= logging.WARNING] == []


async def hold(leases: Leases, name: str) -> None:
    held = asyncio.Event()

    async def act() -> None:
        held.set()
        await asyncio.Event().wait()

    async with running(leases.run(), leases.while_held(name, act)):
        await soon(held.wait())


@pytest.mark.parametrize("role", ["watcher", "patcher", "operator"])
@pytest.mark.parametrize("subject", ["$KV.addresses.address.x", "$KV.edges.x", "$KV.leases.edge"])
async def test_only_workers_write_addresses_and_edges(roles: RoleServer, role: Role, subject: str) -> None:
    async with roles.speaking(role) as speaker:
        await speaker.client.publish(subject, b"")
        assert f'for publish to "{subject.lower()}"' in await speaker.refusal()
