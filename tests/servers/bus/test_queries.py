"""What the owner of an edge may do on the bus, and questions that it answers."""

from __future__ import annotations

import asyncio
import logging

import pytest

from bus import queries, streams
from bus.leases.leases import Leases
from bus.transport.buckets import Bucket
from bus.transport.connection import connected
from tests.support.roles import RoleServer
from tests.support.running import running, soon
from windowbox.errors import Unreachable


async def test_the_operator_asks_and_the_worker_answers(
    roles: RoleServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(question: bytes) -> bytes:
        if question == b"fail":
            raise Unreachable("Envoy has just ended")
        return b"all is well with " + question

    async with (
        connected(roles.access("worker")) as worker,
        connected(roles.access("operator")) as operator,
        queries.answering(worker, queries.EDGE, answer),
    ):
        assert await queries.ask(operator, queries.EDGE, b"web") == b"all is well with web"
        with pytest.raises(Unreachable, match="Envoy has just ended"):
            await queries.ask(operator, queries.EDGE, b"fail")

    assert complaints(caplog) == []


async def test_where_nobody_owns_the_edge_one_is_told_so_at_once(roles: RoleServer) -> None:
    async with connected(roles.access("operator")) as operator:
        assert await queries.ask(operator, queries.EDGE) is None


async def test_a_worker_keeps_addresses_and_states_and_owns_an_edge(
    roles: RoleServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with connected(roles.access("watcher")) as watcher:
        await streams.ensure(watcher)
    async with connected(roles.access("worker")) as bus:
        for name in (streams.ADDRESSES, streams.EDGES):
            await keep(Bucket(bus, name))
        leases, owned = Leases(bus, "me", "work"), asyncio.Event()

        async def own() -> None:
            owned.set()
            await asyncio.Event().wait()

        async with running(leases.run(), leases.while_held("edge", own)):
            await soon(owned.wait())

    assert complaints(caplog) == []


async def keep(bucket: Bucket) -> None:
    """Write, read, and remove."""
    async with running(bucket.run()):
        await soon(bucket.complete.wait())
        sequence = await bucket.put("a", b"1", 0)
        await bucket.catch_up()
        assert (await bucket.get("a")).value == b"1"
        await bucket.delete("a", sequence)


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno >= logging.WARNING]
