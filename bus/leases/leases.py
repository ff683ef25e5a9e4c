"""Leases: one holder at a time for one thing, released when the holding process has ended in any way.

A lease is an entry that names its holder's life (`bus/leases/liveness.py`). It is written once: each process
renews its life only, once for all its leases.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar

from bus import streams, subjects
from bus.leases import guard, liveness
from bus.leases.guard import Lost
from bus.leases.liveness import Life, Liveness
from bus.transport import buckets, consumers
from bus.transport.connection import TIMEOUT, Bus, WrongSequence
from bus.transport.finishing import to_end
from windowbox.errors import TransientError, WindowboxError

__all__ = ["HOLDER", "LEFT", "Leases", "Lost", "check"]

logger = logging.getLogger(__name__)

_STREAM = f"KV_{streams.LEASES}"
HOLDER = "Windowbox-Life"
"""The header of an entry that names its holder's life."""
LEFT = "Windowbox-Left"
"""The header of an entry whose holder has ended, and which waits so many seconds for the next process of the
same place. The entry stays: the stream's age would end it before a longer TTL of its own."""
_FOR_EVER = {"Nats-TTL": "never"}
"""Other messages of this stream, such as lives, expire."""
_AGAIN = 0.1
_LOOK = 60.0
"""Seconds after which a waiting process reads the lease, in case that it has missed a change. There are forty
leases, and each of them takes two requests of each process that waits."""


Act = Callable[[], Awaitable[None]]


def check() -> None:
    """Raise Lost if another process may hold the lease under which the current task runs.

    A process that was stopped for a while would otherwise go on until it learns that it lost the lease.
    """
    share = _ACTING_FOR.get()
    if share is not None and not share.held():
        raise Lost("another process may hold the lease by now")


class Leases:
    """Leases of one process. `run` must be running: it notices when a lease becomes free.

    All users of a lease in this process share it. `role` says which lives the process may write, and
    `seconds` how long one lasts without a renewal.
    """

    def __init__(self, bus: Bus, owner: str, role: str, seconds: float = streams.LEASE_SECONDS) -> None:
        self._bus = bus
        self.owner = owner

        def end(life: Life) -> None:
            for share in self._shares.values():
                if share.life is life:
                    share.stop()

        self._liveness = Liveness(bus, role, owner, end, seconds)
        self._changed: dict[str, asyncio.Event] = {}
        self._shares: dict[str, _Share] = {}
        self._releasing: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Follow the changes of all leases; never returns."""
        while True:
            self.doubt_all()
            try:
                async for stored in consumers.follow(self._bus, _STREAM, [_subject(">")]):
                    if stored is None:
                        self._wake_all()
                        continue
                    gone, holder = buckets.gone(stored), stored.headers.get(HOLDER)
                    if gone and liveness.is_life(stored.subject):
                        self._wake_all()
                    elif gone and stored.subject in self._changed:
                        self._changed[stored.subject].set()
                    name, ours = stored.subject.removeprefix(_subject("")), self._liveness.name
                    share = self._shares.get(name)
                    if share and stored.sequence > share.sequence and holder != ours:
                        share.doubted.set()
                    elif not share and ours and holder == ours:
                        # The bus was unreachable when the lease was to be released.
                        releasing = asyncio.create_task(self._release(name, ours), name="lease release")
                        self._releasing.add(releasing)
                        releasing.add_done_callback(self._releasing.discard)
            except WindowboxError as error:
                logger.debug("leases: %s", error)
                await asyncio.sleep(0.5)

    async def while_held(
        self,
        name: str,
        act: Act,
        taken: Callable[[], None] | None = None,
        *,
        kept: Callable[[], float] | None = None,
    ) -> None:
        """Run `act` whenever this process holds the lease, and cancel it when that is lost; never returns.

        An exception of `act` ends neither the lease nor this process: `act` runs again (`guard.kept`).

        `taken` is called when another process is seen to hold the lease. A lost lease need not have another
        holder: while the bus is unreachable, this is unknown.

        After an orderly end of `act`, the lease is not free but `kept` for so many seconds: any process may
        take it, and `bus.leases.members` counts its holder as alive.
        """
        async with self._shared(name) as share:
            share.kept = kept or share.kept
            share.taken += [taken] if taken else []
            try:
                while True:
                    await share.do(name, act)
            finally:
                share.taken = [one for one in share.taken if one != taken]

    async def once(self, name: str, act: Act) -> None:
        """Run `act` to its end under the lease. It starts again if the lease is lost meanwhile."""
        async with self._shared(name) as share:
            while not await share.do(name, act):
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
        """Acquire the lease whenever it is free, and hold it for as long as possible."""
        try:
            await guard.kept(f"lease {name}", lambda: self._hold(name, share))
        finally:
            await self._release(name, self._liveness.name, share.kept())

    async def _hold(self, name: str, share: _Share) -> None:
        subject = _subject(name)
        while True:
            try:
                life = await self._acquire(subject, share)
                logger.info("owner of %s", name)
                try:
                    share.gain(life)
                    while not life.over:
                        await share.doubted.wait()
                        share.doubted.clear()
                        await self._confirm(subject, share, life)
                finally:
                    await share.lost()
                raise Lost(subject)
            except Lost:
                logger.info("no longer owner of %s", name)
            except TransientError as error:
                logger.info("lease %s: %s", name, error)
                await asyncio.sleep(0.5)

    async def _acquire(self, subject: str, share: _Share) -> Life:
        changed = self._changed.setdefault(subject, asyncio.Event())
        while True:
            changed.clear()
            last = await self._bus.last(_STREAM, subject)
            # The entry is read before the life that it names: should that life begin again, its holder writes
            # the entry again, and our write is refused.
            holder = last.headers.get(HOLDER, "") if last else ""
            free = last is None or buckets.gone(last) or LEFT in last.headers or holder == self._liveness.name
            if free or (holder and not await self._liveness.lives(holder)):
                life = await self._liveness.begin()
                share.doubted.clear()
                try:
                    share.sequence = await self._write(subject, life, last.sequence if last else 0)
                except WrongSequence:
                    await asyncio.sleep(_AGAIN)
                    continue
                return life
            if last and last.data != self.owner.encode():
                for taken in share.taken:
                    taken()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK):
                    await changed.wait()

    async def _confirm(self, subject: str, share: _Share, life: Life) -> None:
        """Write the entry again. Raises Lost if another process has written it meanwhile."""
        while not life.over:
            with contextlib.suppress(TransientError):
                try:
                    share.sequence = await self._write(subject, life, share.sequence, liveness.PATIENCE)
                    return
                except WrongSequence:
                    # The entry may still name us: the response to an earlier attempt was lost.
                    last = await self._bus.last(_STREAM, subject, liveness.PATIENCE)
                    if last is None or last.headers.get(HOLDER) != life.name:
                        raise Lost(subject) from None
                    share.sequence = last.sequence
            await asyncio.sleep(_AGAIN)

    async def _write(self, subject: str, life: Life, expected: int, timeout: float = TIMEOUT) -> int:
        """Name this process as the holder. Cancellation waits: else no process knew whether we hold it."""
        headers = {HOLDER: life.name, **_FOR_EVER}
        sequence = await to_end(
            self._bus.publish(subject, self.owner.encode(), headers, expect_last=expected, timeout=timeout)
        )
        assert sequence is not None  # no message id, so never a duplicate
        return sequence

    async def _release(self, name: str, life: str, kept: float = 0.0) -> None:
        """Free the entry if it names this life and has no user here: another process gets it at once."""
        if not self._bus.connected:
            return  # a process that ends with the bus must not wait for it; its life ends soon
        freed = {LEFT: f"{kept:g}", **_FOR_EVER} if kept else {"KV-Operation": "DEL"}
        with contextlib.suppress(WindowboxError):
            last = await self._bus.last(_STREAM, _subject(name))
            if last and last.headers.get(HOLDER) == life and name not in self._shares:
                await self._bus.publish(last.subject, b"", freed, expect_last=last.sequence)

    def _wake_all(self) -> None:
        for changed in self._changed.values():
            changed.set()

    def doubt_all(self) -> None:
        """Confirm all leases: others may have acquired them unnoticed."""
        for share in self._shares.values():
            share.doubted.set()


class _Share:
    """A lease, as its users in this process share it."""

    keeping: asyncio.Task[None]

    def __init__(self) -> None:
        self.users = 0
        self.sequence = 0
        """Of the entry that names this process."""
        self.kept: Callable[[], float] = float
        """Seconds for which the entry is kept after an orderly end."""
        self.doubted = asyncio.Event()
        """Set when another process may have written the entry."""
        self.taken: list[Callable[[], None]] = []
        self.life: Life | None = None
        self._held = asyncio.Event()
        self._acts: set[asyncio.Future[None]] = set()

    def held(self) -> bool:
        return self._held.is_set() and self.life is not None and self.life.safe

    def gain(self, life: Life) -> None:
        if not life.safe:
            raise Lost("the life that the entry names has ended")
        self.life = life
        self._held.set()

    def stop(self) -> None:
        """Cancel the users' acts: another process will hold the lease."""
        self._held.clear()
        self.doubted.set()
        for act in self._acts:
            act.cancel()

    async def lost(self) -> None:
        """Cancel the users' acts, and wait until they have ended."""
        self.stop()
        if self._acts:
            await asyncio.wait(self._acts)

    async def do(self, name: str, act: Act) -> bool:
        """Run `act` under its guard once the lease is held. False if the lease was lost before it ended."""
        while not self._held.is_set():  # it may be lost again before the wait returns
            held = asyncio.ensure_future(self._held.wait())
            try:
                await asyncio.wait([held, self.keeping], return_when=asyncio.FIRST_COMPLETED)
                if self.keeping.done():
                    self.keeping.result()  # only an unexpected error ends it
            finally:
                held.cancel()
        # The task copies the context when it is created.
        token = _ACTING_FOR.set(self)
        try:
            acting = asyncio.ensure_future(guard.kept(name, act))
        finally:
            _ACTING_FOR.reset(token)
        self._acts.add(acting)
        try:
            await asyncio.wait([acting])
            if acting.cancelled():
                return False
            if isinstance(acting.exception(), Lost):
                # `check` has noticed it before the task that renews.
                self.doubted.set()
                await asyncio.sleep(_AGAIN)
                return False
            acting.result()
            return True
        finally:
            acting.cancel()
            await asyncio.wait([acting])
            self._acts.discard(acting)
            if not acting.cancelled():
                acting.exception()


_ACTING_FOR: ContextVar[_Share | None] = ContextVar("_ACTING_FOR", default=None)
"""The lease under which a task, and all tasks that it starts, run."""


def _subject(name: str) -> str:
    return subjects.entry(streams.LEASES, name)
