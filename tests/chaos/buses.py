"""The bus of a chaos run: one NATS server, or three that are one bus."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from typing import Literal

from sandbox.supervisor import Supervisor

SERVERS: Literal[1, 3] = 3 if os.environ.get("CHAOS_NATS") == "3" else 1
PATIENCE = 3 if SERVERS == 3 else 1
"""Everything takes so many times as long: three servers agree on each message, and choose leaders anew."""


@contextlib.asynccontextmanager
async def stopped(sandbox: Supervisor) -> AsyncIterator[None]:
    """No server of the bus runs meanwhile."""
    await asyncio.gather(*(sandbox.stop(name) for name in sandbox.bus_servers))
    yield
    await asyncio.gather(*(sandbox.start(name) for name in sandbox.bus_servers))


async def wipe(sandbox: Supervisor) -> None:
    """Let the bus forget everything."""
    async with stopped(sandbox):
        for name in sandbox.bus_servers:
            sandbox.wipe(name)
