"""Presence: every process answers when it is asked which processes there are."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
from nats.aio.msg import Msg

from bus.connection import Bus, translated
from bus.consumers import Inbox

SUBJECT = "windowbox.processes"
_PATIENCE = 0.4


@contextlib.asynccontextmanager
async def answering(bus: Bus, describe: Callable[[], dict[str, Any]]) -> AsyncIterator[None]:
    """Tell whoever asks what this process is and does."""

    async def answer(question: Msg) -> None:
        with translated("answer"):
            await bus.client.publish(question.reply, orjson.dumps(describe()))

    with translated("subscribe"):
        subscription = await bus.client.subscribe(SUBJECT, cb=answer)
    try:
        yield
    finally:
        with contextlib.suppress(Exception):
            await subscription.unsubscribe()


async def processes(bus: Bus) -> list[dict[str, Any]]:
    """All processes that answer within a moment."""
    inbox = Inbox()
    found: list[dict[str, Any]] = []
    async with inbox.open(bus):
        with translated("ask"):
            await bus.client.publish(SUBJECT, b"", reply=inbox.subject)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                while True:
                    messages = await inbox.batch(None) or []
                    found += [orjson.loads(m.data) for m in messages if m.data]
    return sorted(found, key=lambda p: (p["role"], p["process"]))
