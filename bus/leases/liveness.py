"""Liveness of a process: one key, renewed for all of its leases together."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable

from bus import streams, subjects
from bus.leases import guard
from bus.leases.guard import Lost
from bus.transport import buckets
from bus.transport.connection import TIMEOUT, Bus, WrongSequence
from windowbox.errors import TransientError

_STREAM = f"KV_{streams.LEASES}"
_RENEW, _GIVE_UP = 1 / 3, 0.8
"""Parts of a life's seconds: until it is renewed, and until this process stops without a renewal by itself,
before the server removes the key."""
PATIENCE = 0.65
"""Seconds to wait for one response: if it is lost, there is time for another attempt."""
_AGAIN = 0.1


class Life:
    """A time for which a process counts as alive without a gap. After a gap, another life begins."""

    def __init__(self, role: str, seconds: float = streams.LEASE_SECONDS) -> None:
        self.name = f"{role}.{secrets.token_hex(8)}"
        self.seconds = seconds
        """For which the key lives without a renewal."""
        self.renewed = 0.0
        """When the last renewal that the server has confirmed was sent."""
        self.over = False

    @property
    def safe(self) -> bool:
        """Whether the server still has the key, however long this process was stopped."""
        return not self.over and time.monotonic() < self.ends

    @property
    def ends(self) -> float:
        """When this process stops without a renewal."""
        return self.renewed + self.seconds * _GIVE_UP


class Liveness:
    """Keeps a key on the bus for as long as this process holds leases."""

    def __init__(
        self, bus: Bus, role: str, owner: str, on_end: Callable[[Life], None], seconds: float
    ) -> None:
        self._bus = bus
        self._role = role
        self._owner = owner
        self._on_end = on_end
        self._seconds = seconds
        self._beginning = asyncio.Lock()
        self._life: Life | None = None
        self._renewing: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """The name of the current life; empty if there is none."""
        return self._life.name if self._life else ""

    async def begin(self) -> Life:
        """The current life; a new one if the last has ended."""
        async with self._beginning:
            if self._life is None or self._life.over:
                life = Life(self._role, self._seconds)
                sequence = await self._write(life, 0)
                self._life = life
                self._renewing = asyncio.create_task(self._keep(life, sequence), name="lease renewal")
            return self._life

    async def end(self) -> None:
        """Stop renewing: the key expires."""
        self._life = None
        if renewing := self._renewing:
            self._renewing = None
            renewing.cancel()
            await asyncio.wait([renewing])

    async def lives(self, name: str) -> bool:
        """Whether the process with the life of this name may still act."""
        last = await self._bus.last(_STREAM, subject(name))
        return last is not None and not buckets.gone(last)

    async def _keep(self, life: Life, sequence: int) -> None:
        """Renew the key until that fails for too long; then report the end of the life."""
        try:
            while True:
                await asyncio.sleep(life.renewed + life.seconds * _RENEW - time.monotonic())
                async with asyncio.timeout_at(life.ends):
                    while True:
                        with contextlib.suppress(TransientError):
                            try:
                                sequence = await self._write(life, sequence, PATIENCE)
                                break
                            except WrongSequence:
                                # Only we write the key: the response to an earlier attempt was lost.
                                last = await self._bus.last(_STREAM, subject(life.name), PATIENCE)
                                if last is None or buckets.gone(last):
                                    raise Lost(life.name) from None
                                sequence = last.sequence
                        await asyncio.sleep(_AGAIN)
        except (Lost, TimeoutError):
            pass
        except Exception as error:  # a permanent error of the bus, or a bug
            guard.note("lease renewal", error, "all leases are acquired again")
        finally:
            life.over = True
            self._on_end(life)

    async def _write(self, life: Life, expected: int, timeout: float = TIMEOUT) -> int:
        asked = time.monotonic()
        # The stream has the expiry of most lives. It is exact to 0.3 s, and that of a message to 0.2 s.
        short = {"Nats-TTL": f"{life.seconds:g}s"} if life.seconds < streams.LEASE_SECONDS else None
        sequence = await self._bus.publish(
            subject(life.name), self._owner.encode(), short, expect_last=expected, timeout=timeout
        )
        assert sequence is not None  # no message id, so never a duplicate
        life.renewed = asked
        return sequence


def subject(name: str) -> str:
    return subjects.entry(streams.LEASES, f"process.{name}")


def is_life(of: str) -> bool:
    """Whether this is the subject of a process's key, not of a lease."""
    return of.startswith(subject(""))
