"""One Envoy replaces another on the same addresses."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from windowbox.errors import TransientError, Unreachable, WindowboxError
from workers.loadbalancer.envoy import admin, bootstrap, jsonfiles, protobuf, resources
from workers.loadbalancer.envoy.attachments import Running
from workers.loadbalancer.envoy.resources import Configuration
from workers.loadbalancer.launcher import commandline

logger = logging.getLogger(__name__)

NO_LISTENERS = {bootstrap.LISTENERS: resources.NOTHING.files[bootstrap.LISTENERS]}
"""First of a new Envoy, and last of an old one: with SO_REUSEPORT, every open listener gets clients."""

_START = 30.0
"""Seconds for a new Envoy to become live, and to listen."""
_LONGEST_PAUSE = 30.0
"""Seconds between two attempts to end an Envoy, after many failures."""
_HEALTH = 10.0
"""Seconds for a new Envoy to check the endpoints that the old one knows to be healthy."""


async def prepare(new: Running, old: Running | None, written: Configuration) -> None:
    """Wait until the new Envoy serves as well as the old one. Unreachable if it does not."""

    async def is_live() -> bool:
        return (await admin.standing(new)).live

    if not await _happens(is_live, _START):
        raise Unreachable(f"{new.name}: the new Envoy does not serve after {_START:g} s")
    if old is not None:
        await _happens(lambda: _as_healthy(new, old), _HEALTH)
    await new.write({bootstrap.LISTENERS: written.files[bootstrap.LISTENERS]})
    if not await _happens(lambda: _listens(new, written), _START):
        raise Unreachable(f"{new.name}: the new Envoy does not listen after {_START:g} s")


async def drained(old: Running) -> None:
    """Drain a replaced Envoy: end it with its last connection, or after a time limit."""
    pause = 0.1
    try:
        await old.write(NO_LISTENERS)
        await jsonfiles.retire(old, NO_LISTENERS[bootstrap.LISTENERS])
        # Until it has read the file, it accepts connections.
        await _happens(lambda: _listens(old, resources.NOTHING), _START)
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


async def _listens(running: Running, written: Configuration) -> bool:
    standing = await admin.standing(running)
    # The old Envoy has refused the same listeners.
    wanted = protobuf.version(written.files[bootstrap.LISTENERS])
    return standing.listeners == wanted or standing.listeners_rejected > 0


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
