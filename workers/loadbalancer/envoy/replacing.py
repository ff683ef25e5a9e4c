"""One Envoy replaces another on the same addresses."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from windowbox.errors import TransientError, Unreachable, WindowboxError
from workers.loadbalancer.envoy import admin
from workers.loadbalancer.envoy.attachments import Running
from workers.loadbalancer.envoy.delta import Kind
from workers.loadbalancer.envoy.discovery import Session
from workers.loadbalancer.launcher import commandline
from workers.loadbalancer.tracked import Tracked

logger = logging.getLogger(__name__)

_FILES = {
    "lds.pb": b"\x0a\x010",  # a DiscoveryResponse of version 0
    "lds.json": b'{"version_info":"0","resources":[]}',
}
"""Files of earlier versions of windowbox, from which their Envoys read listeners: here, none."""

_START = 30.0
"""Seconds for a new Envoy to become live, and to listen."""
_LONGEST_PAUSE = 30.0
"""Seconds between two attempts to end an Envoy, after many failures."""
_HEALTH = 10.0
"""Seconds for a new Envoy to check the endpoints that the old one knows to be healthy."""


async def prepare(new: Running, session: Session, old: Running | None) -> None:
    """Wait until the new Envoy serves as well as the old one. Unreachable if it does not."""

    async def is_live() -> bool:
        return await admin.is_live(new)

    # First without listeners: with SO_REUSEPORT, every open listener gets clients.
    if not await session.until(session.delta.has_all_but_listeners, _START) or not await _happens(
        is_live, _START
    ):
        raise Unreachable(f"{new.name}: the new Envoy does not serve after {_START:g} s")
    if old is not None:
        await _happens(lambda: _as_healthy(new, old), _HEALTH)
    session.release()
    if not await session.settled(_START):
        raise Unreachable(f"{new.name}: the new Envoy does not listen after {_START:g} s")


async def drained(old: Running, session: Session) -> None:
    """Drain a replaced Envoy: end it with its last connection, or after a time limit."""
    pause = 0.1
    try:
        # Whatever else it has stays: its connections need it.
        session.want({Kind.LISTENERS: Tracked()})
        if files := {name: none for name, none in _FILES.items() if await old.read(name) is not None}:
            await old.write(files)
        else:
            # Until it has answered, it accepts connections.
            await session.settled(_START)
        async with asyncio.timeout(commandline.DRAIN):
            # After this pause, connections that its threads accepted last are counted, too.
            await asyncio.sleep(pause)
            while await admin.connections(old):
                await asyncio.sleep(pause)
                pause = min(5.0, pause * 2)
    except (TimeoutError, WindowboxError) as error:
        logger.info(
            "%s: generation %s is ended: %s", old.name, old.generation, error or "the time limit is over"
        )
    pause = 0.1
    while True:
        try:
            # A launcher that is away, or a slow engine, may leave the Envoy running.
            return await old.end()
        except WindowboxError as error:
            pause = min(_LONGEST_PAUSE, pause * 2)
            logger.warning(
                "%s: generation %s does not end, retry in %g s: %s", old.name, old.generation, pause, error
            )
            await asyncio.sleep(pause)


async def _as_healthy(new: Running, old: Running) -> bool:
    """Whether all endpoints that are healthy for the old Envoy are healthy for the new one."""
    known = await admin.health(new)
    return all(
        any((one.address, one.port, one.healthy) == (mine.address, mine.port, True) for mine in known[name])
        for name, endpoints in (await admin.health(old)).items()
        for one in endpoints
        if one.healthy and name in known
    )


async def _happens(look: Callable[[], Awaitable[bool]], patience: float) -> bool:
    """Whether it does within so many seconds. Envoy's admin interface has no watch, so this polls."""
    pause = 0.005
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(patience):
            while True:
                with contextlib.suppress(TransientError):
                    if await look():
                        return True
                await asyncio.sleep(pause)
                pause = min(0.1, pause * 2)
    return False
