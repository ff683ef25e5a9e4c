"""The connection: what it sends, and how often it reads."""

from __future__ import annotations

import asyncio
import time

import pytest
from nats.aio.msg import Msg

from bus import streams
from bus.transport import directclient
from bus.transport.connection import Bus, connected
from bus.transport.directclient import PacedParser
from tests.support.natsserver import NatsServer
from tests.support.running import soon
from windowbox.errors import Unreachable
from windowbox.settings.bussettings import Access


async def test_a_header_with_a_line_break_stays_one_header(one_server: NatsServer) -> None:
    async with connected(Access(one_server.url)) as bus:
        came = asyncio.Queue[Msg]()
        await bus.client.listen("mail", came.put_nowait)
        await bus.client.publish("mail", b"hello", headers={"From": "a\r\nTo: b", "Plain": "yes"})
        message = await soon(came.get())
    assert (message.data, message.headers) == (b"hello", {"From": "a  To: b", "Plain": "yes"})


@pytest.mark.parametrize(("many", "reads"), [(1_000_000, range(150, 10_000)), (0, range(1, 120))])
async def test_where_many_messages_come_each_read_takes_several(
    one_server: NatsServer, monkeypatch: pytest.MonkeyPatch, many: int, reads: range
) -> None:
    monkeypatch.setattr(directclient, "_LOOK", 0.0)
    monkeypatch.setattr(directclient, "_MANY", many)
    count, came = 200, asyncio.Queue[Msg]()
    async with connected(Access(one_server.url)) as bus, connected(Access(one_server.url)) as sender:
        await bus.client.listen("mail", came.put_nowait)
        await bus.client.flush()
        parser = bus.client._ps
        assert isinstance(parser, PacedParser)
        before = parser.reads
        for _ in range(count):
            await sender.client.publish("mail", b"")
            await asyncio.sleep(0.001)  # so that each message comes alone
        for _ in range(count):
            await soon(came.get())
        assert parser.reads - before in reads


async def test_of_many_that_ask_whether_the_server_answers_one_sends_a_request(one_bus: Bus) -> None:
    sent: list[float] = []

    async def ask() -> None:
        sent.append(time.monotonic())
        if len(sent) == 1:
            raise Unreachable("no answer")
        await one_bus.last(streams.JOURNAL, "start.test.alive")

    now = time.monotonic()
    found = await asyncio.gather(*(one_bus.alive(now, ask) for _ in range(20)), return_exceptions=True)
    assert len(sent) == 2
    assert [str(one) for one in found if isinstance(one, Exception)] == ["no answer"]
    assert {one for one in found if not isinstance(one, BaseException)} == {one_bus.requests.answered}
    assert one_bus.requests.answered >= sent[1]
    assert await one_bus.alive(later := time.monotonic(), ask) >= later
    assert len(sent) == 3
