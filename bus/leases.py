"""Leases: one holder at a time for one thing; they expire when their holder is killed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar

from bus import buckets, consumers, streams, subjects
from bus.connection import Bus, WrongSequence
from windowbox.errors import TransientError, WindowboxError

logger = logging.getLogger(__name__)

_STREAM = f"KV_{streams.LEASES}"
_RENEW = streams.LEASE_SECONDS / 3
_GIVE_UP = streams.LEASE_SECONDS * 0.8
"""Without renewal for so long we stop by ourselves: before the server gives the lease to another."""


Act = Callable[[], Awaitable[None]]


class Lost(WindowboxError):
    """The lease is no longer ours."""


def check() -> None:
    """Stop here if the lease for which this is done may be another's: we have been away for too long.

    Whoever was stopped for a while would otherwise go on for a moment before it hears that it has lost.
    """
    share = _ACTING_FOR.get()
    if share is not None and not share.held():
        raise Lost("the lease may be another's by now")


class Leases:
    """Leases of one process. `run` must be running for those who wait to be told.

    All in this process who ask for the same lease share it: it is renewed once for all of them.
    """

    def __init__(self, bus: Bus, owner: str) -> None:
        self._bus = bus
        self.owner = owner
        self._changed: dict[str, asyncio.Event] = {}
        self._shares: dict[str, _Share] = {}

    async def run(self) -> None:
        """Listen to what becomes of the leases, for ever."""
        while True:
            try:
                async for stored in consumers.follow(self._bus, _STREAM, [_subject(">")]):
                    if stored is not None and buckets.gone(stored):
                        self._wake(stored.subject)
            except WindowboxError as error:
                logger.debug("leases: %s", error)
                await asyncio.sleep(0.5)

    async def while_held(self, name: str, act: Act) -> None:
        """Do `act` whenever the lease is ours, and stop it when it is not. For ever."""
        while True:
            await self.once(name, act)

    async def once(self, name: str, act: Act) -> None:
        """Do `act` to its end while the lease is ours, beginning anew if we lose it meanwhile."""
        async with self._shared(name) as share:
            while not await share.do(act):
                pass

    @contextlib.asynccontextmanager
    async def _shared(self, name: str) -> AsyncIterator[_Share]:
        share = self._shares.get(name)
        if share is None:
            share = self._shares[name] = _Share()
            share.keeping = asyncio.create_task(self._keep(name, share), name=f"lease {name}")
        share.users += 1
        try:
            yield share
        finally:
            share.users -= 1
            if not share.users:
                del self._shares[name]
                share.keeping.cancel()
                await asyncio.wait([share.keeping])

    async def _keep(self, name: str, share: _Share) -> None:
        """Get the lease whenever it is free, and hold it for as long as possible."""
        subject = _subject(name)
        while True:
            try:
                sequence = await self._acquire(subject, share)
                logger.info("owner of %s", name)
                await self._hold(subject, sequence, share)
            except Lost:
                logger.info("no longer owner of %s", name)
            except TransientError as error:
                logger.info("lease %s: %s", name, error)
                await asyncio.sleep(0.5)

    async def _acquire(self, subject: str, share: _Share) -> int:
        changed = self._changed.setdefault(subject, asyncio.Event())
        while True:
            changed.clear()
            last = await self._bus.last(_STREAM, subject)
            if last is None or buckets.gone(last):
                with contextlib.suppress(WrongSequence):
                    return await self._write(subject, last.sequence if last else 0, share)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(streams.LEASE_SECONDS):
                    await changed.wait()

    async def _hold(self, subject: str, sequence: int, share: _Share) -> None:
        share.gained()
        try:
            while True:
                await asyncio.sleep(_RENEW)
                sequence = await self._renew(subject, sequence, share)
        finally:
            await share.lost()
            await self._release(subject)

    async def _renew(self, subject: str, sequence: int, share: _Share) -> int:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _GIVE_UP - _RENEW
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    return await self._write(subject, sequence, share)
            except (TransientError, TimeoutError) as error:
                if isinstance(error, WrongSequence) or loop.time() >= deadline:
                    raise Lost(subject) from error
                await asyncio.sleep(0.1)

    async def _write(self, subject: str, expected: int, share: _Share) -> int:
        asked = time.monotonic()
        sequence = await self._bus.publish(subject, self.owner.encode(), expect_last=expected)
        assert sequence is not None  # no message id, so never a duplicate
        share.renewed = asked
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


class _Share:
    """A lease, as those who share it see it."""

    keeping: asyncio.Task[None]

    def __init__(self) -> None:
        self.users = 0
        self.renewed = 0.0
        """When the server was asked for it the last time that it gave it to us."""
        self._held = asyncio.Event()
        self._acts: set[asyncio.Future[None]] = set()

    def held(self) -> bool:
        return self._held.is_set() and time.monotonic() - self.renewed < _GIVE_UP

    def gained(self) -> None:
        self._held.set()

    async def lost(self) -> None:
        """Stop what is being done, and wait until it has stopped."""
        self._held.clear()
        for act in self._acts:
            act.cancel()
        if self._acts:
            await asyncio.wait(self._acts)

    async def do(self, act: Act) -> bool:
        """Do `act` once the lease is ours. Whether it came to its end before the lease was lost."""
        await self._until_held()
        acting = self._begin(act)
        self._acts.add(acting)
        try:
            await asyncio.wait([acting])
            if acting.cancelled():
                return False
            acting.result()
            return True
        finally:
            acting.cancel()
            await asyncio.wait([acting])
            self._acts.discard(acting)
            if not acting.cancelled():
                acting.exception()

    def _begin(self, act: Act) -> asyncio.Future[None]:
        before = _ACTING_FOR.set(self)
        try:
            return asyncio.ensure_future(act())
        finally:
            _ACTING_FOR.reset(before)

    async def _until_held(self) -> None:
        held = asyncio.ensure_future(self._held.wait())
        try:
            await asyncio.wait([held, self.keeping], return_when=asyncio.FIRST_COMPLETED)
            if self.keeping.done():
                self.keeping.result()  # it only ever ends because of something nobody foresaw
        finally:
            held.cancel()


_ACTING_FOR: ContextVar[_Share | None] = ContextVar("_ACTING_FOR", default=None)
"""The lease for which a task, and all that it starts, is at work."""


def _subject(name: str) -> str:
    return subjects.entry(streams.LEASES, name)
