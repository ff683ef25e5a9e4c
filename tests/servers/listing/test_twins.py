"""One worker follows all DNSRecords, and answers the others."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

import pytest

from bus import queries, streams, subjects
from bus.connection import Bus, connected
from tests.servers.listing.test_incomplete import announce
from tests.support.roles import RoleServer
from tests.support.running import eventually, running
from windowbox.errors import NotListed
from windowbox.models.recordsets import RecordKey
from windowbox.models.refs import DNSRECORDS, RUNTIME, ObjectRef
from workers.dnsrecord.actuator import DNSRecordActuator
from workers.dnsrecord.claims import Claims
from workers.dnsrecord.twins import SharedTwins
from workers.lifecycle.kinds import Run
from workers.lifecycle.predicates import Scope

ZONE = "local.gardener.cloud"
SPEC: dict[str, Any] = {
    "type": "local", "name": f"api.{ZONE}", "recordType": "A", "values": ["10.0.0.1"], "secretRef": {},
}  # fmt: skip
KEY = RecordKey(SPEC["name"], "A")
ONE, OTHER = (ObjectRef(RUNTIME, DNSRECORDS.id, "demo", name) for name in ("one", "other"))


def twins_of(bus: Bus) -> tuple[SharedTwins, Claims]:
    scope = Scope(frozenset({"local"}), frozenset({"shoot"}))
    claims = Claims(bus, scope, [ZONE], lambda: {RUNTIME})
    return SharedTwins(bus, claims), claims


async def test_a_worker_asks_the_one_that_follows_all_dnsrecords(
    roles: RoleServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        connected(roles.access("watcher")) as watcher,
        connected(roles.access("worker")) as near,
        connected(roles.access("worker")) as far,
    ):
        await streams.ensure(watcher)
        await announce(watcher, ONE, SPEC)
        (holder, claims), (asker, _) = twins_of(near), twins_of(far)

        async def both(twin: ObjectRef | None) -> bool:
            """Whether both say so by now."""
            with contextlib.suppress(NotListed):  # as long as nobody answers
                return [await one.find(ONE, ZONE, KEY) for one in (asker, holder)] == [twin, twin]
            return False

        with pytest.raises(NotListed, match="no worker follows"):
            await asker.find(ONE, ZONE, KEY)
        async with running(claims.run(), holder.answer()):
            with pytest.raises(NotListed):  # `demo` may have more records than have been announced
                await eventually(lambda: asker.find(ONE, ZONE, KEY))
            await watcher.publish(subjects.listed(RUNTIME, DNSRECORDS.id), b"")
            await eventually(lambda: both(None))
            await announce(watcher, OTHER, SPEC)
            await eventually(lambda: both(OTHER))
        with pytest.raises(NotListed, match="no worker follows"):
            await asker.find(ONE, ZONE, KEY)
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_name_whose_twins_nobody_tells_is_not_taken_for_deleted(roles: RoleServer) -> None:
    async def never(_: bytes) -> bytes:
        await asyncio.Event().wait()
        return b""

    class Actuator(DNSRecordActuator):
        def __init__(self, twins: SharedTwins) -> None:
            self._twins = twins

        async def _remove(self, run: Run) -> None:
            await self._twins.find(ONE, ZONE, KEY)

    async with (
        connected(roles.access("worker")) as frozen,
        connected(roles.access("worker")) as near,
        queries.answering(frozen, queries.TWINS, never),
    ):
        twins, _ = twins_of(near)
        run: Any = None
        with pytest.raises(NotListed):
            await Actuator(twins).force_delete(run)


async def test_a_worker_that_follows_dnsrecords_again_forgets_what_it_knew(bus: Bus) -> None:
    await bus.publish(subjects.listed(RUNTIME, DNSRECORDS.id), b"")
    await announce(bus, ONE, SPEC)
    twins, claims = twins_of(bus)

    async def found() -> list[ObjectRef | None]:
        with contextlib.suppress(NotListed):  # as long as nobody answers
            return [await twins.find(OTHER, ZONE, KEY)]
        return []

    async with running(claims.run(), twins.answer()):
        assert await eventually(found) == [ONE]
    await bus.purge(streams.OBJECTS, subjects.seen(ONE))
    async with running(claims.run(), twins.answer()):
        assert await eventually(found) == [None]
