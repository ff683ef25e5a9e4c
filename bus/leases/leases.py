"""Leases: one holder at a time for one thing; free again when the holding process has ended in any way.

A lease is an entry that names its holder's life (`bus/leases/liveness.py`). It is written once. What is
renewed is the life, once for all leases of a process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar

from bus import streams, subjects
from bus.leases import liveness
from bus.leases.liveness import Life, Liveness, Lost
from bus.transport import buckets, consumers
from bus.transport.connection import TIMEOUT, Bus, Stored, WrongSequence
from bus.transport.finishing import to_end
from windowbox.errors import TransientError, WindowboxError

__all__ = ["HOLDER", "Leases", "Lost", "check"]

logger = logging.getLogger(__name__)

_STREAM = f"KV_{streams.LEASES}"
HOLDER = "Windowbox-Life"
"""The header of an entry with the name of its holder's life."""
_FOR_EVER = {"Nats-TTL": "never"}
"""Other messages of this stream, such as lives, expire."""
_AGAIN = 0.1
_LOOK = streams.LEASE_SECONDS * 5
"""Seconds after which whoever waits looks again, should it not have been told."""


Act = Callable[[], Awaitable[None]]


def check() -> None:
    """Stop here if the lease for which this is done may be another's: we have been away for too long.

    Whoever was stopped for a while would otherwise go on for a moment before it hears that it has lost.
    """
    share = _ACTING_FOR.get()
    if share is not None and not share.held():
        raise Lost("the lease may be another's by now")


class Leases:
    """Leases of one process. `run` must be running for those who wait to be told.

    All in this process who ask for the same lease share it. `role` says which lives the process may write.
    """

    def __init__(self, bus: Bus, owner: str, role: str) -> None:
        self._bus = bus
        self.owner = owner
        self._liveness = Liveness(bus, role, owner, self._end)
        self._changed: dict[str, asyncio.Event] = {}
        self._shares: dict[str, _Share] = {}
        self._releasing: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Listen to what becomes of the leases, for ever."""
        while True:
            try:
                async for stored in consumers.follow(self._bus, _STREAM, [_subject(">")]):
                    if stored is None:
                        self._wake_all()
                    else:
                        self._notice(stored)
            except WindowboxError as error:
                logger.debug("leases: %s", error)
                await asyncio.sleep(0.5)
            self.doubt_all()

    async def while_held(self, name: str, act: Act, taken: Callable[[], None] | None = None) -> None:
        """Do `act` whenever the lease is ours, and stop it when it is not. For ever.

        `taken` is called when another process turns out to hold the lease. A lease that is not ours may be
        nobody's: while the bus is away, nobody can tell.
        """
        async with self._shared(name) as share:
            share.taken += [taken] if taken else []
            try:
                while True:
                    await share.do(act)
            finally:
                share.taken = [one for one in share.taken if one != taken]

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
                if not self._shares:
                    await self._liveness.end()

    async def _keep(self, name: str, share: _Share) -> None:
        """Get the lease whenever it is free, and hold it for as long as possible."""
        subject = _subject(name)
        try:
            while True:
                try:
                    life = await self._acquire(subject, share)
                    logger.info("owner of %s", name)
                    await self._hold(subject, share, life)
                except Lost:
                    logger.info("no longer owner of %s", name)
                except TransientError as error:
                    logger.info("lease %s: %s", name, error)
                    await asyncio.sleep(0.5)
        finally:
            await self._release(name, self._liveness.name)

    async def _acquire(self, subject: str, share: _Share) -> Life:
        changed = self._changed.setdefault(subject, asyncio.Event())
        while True:
            changed.clear()
            last = await self._bus.last(_STREAM, subject)
            if last is None or await self._is_free(last):
                life = await self._liveness.begin()
                share.doubted.clear()
                try:
                    share.sequence = await self._write(subject, life, last.sequence if last else 0)
                except WrongSequence:
                    await asyncio.sleep(_AGAIN)
                    continue
                return life
            if last.data != self.owner.encode():
                for tell in share.taken:
                    tell()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK):
                    await changed.wait()

    async def _is_free(self, last: Stored) -> bool:
        # The entry is read before the life that it names: should that begin anew, its holder writes the entry
        # anew, and ours is refused.
        if buckets.gone(last):
            return True
        holder = last.headers.get(HOLDER, "")
        return holder == self._liveness.name or bool(holder and not await self._liveness.lives(holder))

    async def _hold(self, subject: str, share: _Share, life: Life) -> None:
        try:
            share.gain(life)
            while not life.over:
                await share.doubted.wait()
                share.doubted.clear()
                await self._write_again(subject, share, life)
            raise Lost(subject)
        finally:
            await share.lost()

    async def _write_again(self, subject: str, share: _Share, life: Life) -> None:
        while not life.over:
            with contextlib.suppress(TransientError):
                try:
                    share.sequence = await self._write(subject, life, share.sequence, liveness.PATIENCE)
                    return
                except WrongSequence:
                    share.sequence = await self._stored(subject, life)
            await asyncio.sleep(_AGAIN)

    async def _stored(self, subject: str, life: Life) -> int:
        """The sequence of an entry that names us, after all: the answer to an earlier attempt was lost."""
        last = await self._bus.last(_STREAM, subject, liveness.PATIENCE)
        if last is None or last.headers.get(HOLDER) != life.name:
            raise Lost(subject)
        return last.sequence

    async def _write(self, subject: str, life: Life, expected: int, timeout: float = TIMEOUT) -> int:
        """Name us as the holder. It is not cut short: nobody else could tell whether we hold it."""
        headers = {HOLDER: life.name, **_FOR_EVER}
        sequence = await to_end(
            self._bus.publish(subject, self.owner.encode(), headers, expect_last=expected, timeout=timeout)
        )
        assert sequence is not None  # no message id, so never a duplicate
        return sequence

    async def _release(self, name: str, life: str) -> None:
        """Let another have the lease at once, if this life is its holder and nobody here wants it."""
        with contextlib.suppress(WindowboxError):
            last = await self._bus.last(_STREAM, _subject(name))
            if last and last.headers.get(HOLDER) == life and name not in self._shares:
                await self._bus.publish(last.subject, b"", {"KV-Operation": "DEL"}, expect_last=last.sequence)

    def _notice(self, stored: Stored) -> None:
        gone, holder, ours = buckets.gone(stored), stored.headers.get(HOLDER), self._liveness.name
        if gone and liveness.is_life(stored.subject):
            self._wake_all()
        elif gone and stored.subject in self._changed:
            self._changed[stored.subject].set()
        name = stored.subject.removeprefix(_subject(""))
        share = self._shares.get(name)
        if share and stored.sequence > share.sequence and holder != ours:
            share.doubted.set()
        elif not share and ours and holder == ours:
            # It could not be released, since the bus was away.
            releasing = asyncio.create_task(self._release(name, ours), name="lease release")
            self._releasing.add(releasing)
            releasing.add_done_callback(self._releasing.discard)

    def _wake_all(self) -> None:
        for changed in self._changed.values():
            changed.set()

    def doubt_all(self) -> None:
        """Make sure that all leases are still ours: others may have been given them unheard."""
        for share in self._shares.values():
            share.doubted.set()

    def _end(self, life: Life) -> None:
        for share in self._shares.values():
            if share.life is life:
                share.stop()


class _Share:
    """A lease, as those who share it see it."""

    keeping: asyncio.Task[None]

    def __init__(self) -> None:
        self.users = 0
        self.sequence = 0
        """Of the entry that names us."""
        self.doubted = asyncio.Event()
        """Set when somebody else may have been named."""
        self.taken: list[Callable[[], None]] = []
        self.life: Life | None = None
        self._held = asyncio.Event()
        self._acts: set[asyncio.Future[None]] = set()

    def held(self) -> bool:
        return self._held.is_set() and self.life is not None and self.life.safe

    def gain(self, life: Life) -> None:
        if not life.safe:
            raise Lost("the life ended that is named as the holder")
        self.life = life
        self._held.set()

    def stop(self) -> None:
        """Stop what is being done, since the lease will be another's."""
        self._held.clear()
        self.doubted.set()
        for act in self._acts:
            act.cancel()

    async def lost(self) -> None:
        """Stop what is being done, and wait until it has stopped."""
        self.stop()
        if self._acts:
            await asyncio.wait(self._acts)

    async def do(self, act: Act) -> bool:
        """Do `act` once the lease is ours. Whether it came to its end before the lease was lost."""
        while not self._held.is_set():
            await self._until_held()  # the lease may be lost again before this returns
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
