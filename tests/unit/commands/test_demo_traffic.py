"""What the demo says when its client waits in vain."""

from __future__ import annotations

import asyncio

import pytest

from commands.demo import traffic
from windowbox.errors import Unreachable


async def test_an_answer_that_does_not_come_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a group of them, whose traceback nobody reads."""
    monkeypatch.setattr(traffic, "_LONGEST", 0.2)

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"pod=echo-1 node=node-1\n")
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async def wait_for_another() -> None:
        async with traffic.steady("127.0.0.1", port, rate=50) as tally:
            await tally.until_more(1)
            await tally.until_greeted_by("node-2", since=0)

    async with server:
        with pytest.raises(Unreachable, match=r"the last 20 were of {'node-1': \d+}: `windowbox lb list`"):
            await wait_for_another()
