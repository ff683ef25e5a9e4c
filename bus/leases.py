"""One owner for one thing: leases that run out by themselves when their owner is killed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from bus import consumers, streams
from bus.connection import Bus, Stored, WrongSequence
from windowbox.errors import TransientError, WindowboxError

logger = logging.getLogger(__name__)

_STREAM = f"KV_{streams.LEASES}"
_RENEW = streams.LEASE_SECONDS / 3
_GIVE_UP = streams.LEASE_SECONDS * 0.8
"""Without renewal for so long we stop by ourselves: before the server gives the lease to another."""


class Lost(WindowboxError):
    """The lease is no longer ours."""


class Leases:
    """Leases of one process. `run` must be running for those who wait to be told."""

    def __init__(self, bus: Bus, owner: str) -> None:
        self._bus = bus
        self.owner = owner
        self._changed: dict[str, asyncio.Event] = {}

    async def run(self) -> None:
        """Listen to what becomes of the leases, for ever."""
        while True:
            try:
                async for stored in consumers.follow(self._bus, _STREAM, [_subject(">")]):
                    if stored is not None and _free(stored):
                        self._wake(stored.subject)
            except WindowboxError as error:
                logger.debug("leases: %s", error)
                await asyncio.sleep(0.5)

    async def while_held(self, name: str, act: Callable[[], Awaitable[None]]) -> None:
        """Do `act` whenever the lease is ours, and stop it when it is not. For ever."""
        while True:
            await self._try(name, act)

    async def once(self, name: str, act: Callable[[], Awaitable[None]]) -> None:
        """Do `act` to its end while the lease is ours, beginning anew if we lose it meanwhile."""
        while not await self._try(name, act):
            pass

    async def _try(self, name: str, act: Callable[[], Awaitable[None]]) -> bool:
        """Whether `act` has come to its end."""
        subject = _subject(name)
        try:
            sequence = await self._acquire(subject)
            logger.info("owner of %s", name)
            await self._hold(subject, sequence, act)
            return True
        except Lost:
            logger.info("no longer owner of %s", name)
        except TransientError as error:
            logger.info("lease %s: %s", name, error)
            await asyncio.sleep(0.5)
        return False

    async def _acquire(self, subject: str) -> int:
        changed = self._changed.setdefault(subject, asyncio.Event())
        while True:
            changed.clear()
            last = await self._bus.last(_STREAM, subject)
            if last is None or _free(last):
                with contextlib.suppress(WrongSequence):
                    return await self._write(subject, last.sequence if last else 0)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(streams.LEASE_SECONDS):
                    await changed.wait()

    async def _hold(self, subject: str, sequence: int, act: Callable[[], Awaitable[None]]) -> None:
        acting = asyncio.ensure_future(act())
        try:
            while not (await asyncio.wait([acting], timeout=_RENEW))[0]:
                sequence = await self._renew(subject, sequence)
            await acting
        finally:
            acting.cancel()
            await asyncio.wait([acting])
            if not acting.cancelled():
                acting.exception()
            await self._release(subject)

    async def _renew(self, subject: str, sequence: int) -> int:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _GIVE_UP - _RENEW
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    return await self._write(subject, sequence)
            except (TransientError, TimeoutError) as error:
                if isinstance(error, WrongSequence) or loop.time() >= deadline:
                    raise Lost(subject) from error
                await asyncio.sleep(0.1)

    async def _write(self, subject: str, expected: int) -> int:
        sequence = await self._bus.publish(subject, self.owner.encode(), expect_last=expected)
        assert sequence is not None  # no message id, so never a duplicate
        return sequence

    async def _release(self, subject: str) -> None:
        """Let another have the lease at once, if it is still ours."""
        with contextlib.suppress(WindowboxError):
            # It is read, since a renewal may have been cut short after it was sent.
            last = await self._bus.last(_STREAM, subject)
            if last and last.data == self.owner.encode():
                await self._bus.publish(subject, b"", {"KV-Operation": "DEL"}, expect_last=last.sequence)

    def _wake(self, subject: str) -> None:
        if subject in self._changed:
            self._changed[subject].set()


def _subject(name: str) -> str:
    return f"$KV.{streams.LEASES}.{name}"


def _free(stored: Stored) -> bool:
    """Whether this message ends a lease: given up, or run out."""
    return "KV-Operation" in stored.headers or "Nats-Marker-Reason" in stored.headers
