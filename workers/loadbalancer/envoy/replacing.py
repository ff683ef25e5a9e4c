"""One Envoy takes the place of another, on the same addresses."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from windowbox.errors import TransientError, Unreachable, WindowboxError
from workers.loadbalancer.envoy import admin, bootstrap, jsonfiles, protobuf, resources
from workers.loadbalancer.envoy.attachments import Running
from workers.loadbalancer.envoy.resources import Configuration

logger = logging.getLogger(__name__)

NO_LISTENERS = {bootstrap.LISTENERS: resources.NOTHING.files[bootstrap.LISTENERS]}
"""What the newcomer starts with, and the other ends with: who listens, gets a share of the clients."""

_START = 30.0
"""Seconds that it has until it is live."""
_END_SELDOM = 30.0
"""Seconds until the end of an Envoy is asked for again, after many failures."""
_HEALTH = 10.0
"""Seconds that it has to find out what the other knows of the endpoints."""


async def prepare(new: Running, old: Running | None, written: Configuration) -> None:
    """Wait until the newcomer serves as well as the other. Unreachable if it does not."""
    if not await _happens(lambda: _live(new), _START):
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
        await _retire(old)
        async with asyncio.timeout(bootstrap.DRAIN):
            # The first look is late enough to see what its threads accepted before they stopped listening.
            await asyncio.sleep(pause)
            while await admin.connections(old):
                await asyncio.sleep(pause)
                pause = min(5.0, pause * 2)
    except (TimeoutError, WindowboxError) as error:
        logger.info(
            "%s: generation %s is ended: %s", old.name, old.generation, error or "the time limit is over"
        )
    await _end(old)


async def _end(old: Running) -> None:
    """Also if whoever ends it is away: it may be slow, and the Envoy still there."""
    pause = 0.1
    while True:
        try:
            return await old.end()
        except WindowboxError as error:
            pause = min(_END_SELDOM, pause * 2)
            logger.warning(
                "%s: generation %s does not end, again in %g s: %s", old.name, old.generation, pause, error
            )
            await asyncio.sleep(pause)


async def _retire(old: Running) -> None:
    """Have it take no more clients. It reads what it is told when it gets to it: until then it goes on."""
    await old.write(NO_LISTENERS)
    await jsonfiles.retire(old, NO_LISTENERS[bootstrap.LISTENERS])
    await _happens(lambda: _listens(old, resources.NOTHING), _START)


async def _live(new: Running) -> bool:
    return (await admin.standing(new)).live


async def _as_healthy(new: Running, old: Running) -> bool:
    """Whether all endpoints that the other takes for healthy are so for the newcomer."""
    known = await admin.health(new)
    return all(
        any((one.address, one.port, one.healthy) == (mine.address, mine.port, True) for mine in known[name])
        for name, endpoints in (await admin.health(old)).items()
        for one in endpoints
        if one.healthy and name in known
    )


async def _listens(new: Running, written: Configuration) -> bool:
    standing = await admin.standing(new)
    # Listeners that are refused were refused to the other, too.
    wanted = protobuf.version(written.files[bootstrap.LISTENERS])
    return standing.listeners == wanted or standing.listeners_rejected > 0


async def _happens(look: Callable[[], Awaitable[bool]], patience: float) -> bool:
    """Whether it does within so many seconds. An Envoy does not tell: one has to ask."""
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
