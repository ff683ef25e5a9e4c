"""The connection: what it sends, and how often it reads."""

from __future__ import annotations

import asyncio

import pytest
from nats.aio.msg import Msg

from bus.transport import directclient
from bus.transport.connection import connected
from bus.transport.directclient import PacedParser
from tests.support.natsserver import NatsServer
from tests.support.running import soon
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
