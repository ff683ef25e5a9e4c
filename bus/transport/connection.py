"""The connection to the NATS server. It encodes requests itself: every object passes here several times."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime
from typing import Any

import nats.errors
import orjson
from nats.aio.msg import Msg

from bus.transport import answers, connecting
from bus.transport.access import SecuredClient
from bus.transport.answers import ApiError, Full, Headers, Occupied, Stored, WrongSequence
from bus.transport.clock import ServerClock, instant
from bus.transport.directclient import DirectClient
from bus.transport.requests import Requests
from windowbox.errors import Refused, Unreachable
from windowbox.settings.bussettings import Access

__all__ = [
    "TIMEOUT", "ApiError", "Bus", "Full", "Headers", "Occupied", "Since", "Stored", "WrongSequence",
    "connected", "instant", "translated",
]  # fmt: skip

Since = int | datetime
"""Where a reading begins: a sequence or a time."""

TIMEOUT = 5.0
"""Seconds to wait for an answer of the server."""

_LOOK = 1.0

_AGAIN = 0.05
_CONDITIONAL = ("INTENTS", "TRIGGERS", "KV_")
"""How streams begin whose writers name the last sequence of a subject."""
_REPEAT = 1.0
"""Seconds after which a question that may be asked twice is: its answerer may have lost its office."""


class Bus:
    """A connection to the bus, kept as long as the process lives."""

    def __init__(self, client: DirectClient) -> None:
        self.client = client
        self.requests = Requests(client)
        self.clock = ServerClock(self._server_time)
        self._reconnected: list[Callable[[], None]] = []
        self._disconnected: list[Callable[[], None]] = []
        self._lost_at: float | None = None
        self.closing = False
        """Whether we are ending the connection ourselves."""

    @property
    def max_payload(self) -> int:
        return int(self.client.max_payload)

    @property
    def connected(self) -> bool:
        return bool(self.client.is_connected)

    @property
    def lost_for(self) -> float:
        """Seconds since the connection was lost; 0 while there is one."""
        if self.connected:
            return 0.0
        return time.monotonic() - self._lost_at if self._lost_at else 0.0

    @property
    def dead(self) -> str:
        """Why the connection will never come back; empty as long as it may."""
        if self.client.is_closed:
            return str(self.client.last_error or "it was closed")
        # nats-py connects again in a task of its own, which may end by an error that it did not foresee.
        task = self.client._reconnection_task
        if self.client.is_reconnecting and task is not None and task.done():
            error = None if task.cancelled() else task.exception()
            return f"connecting again ended: {error!r}"
        return ""

    async def watch(self) -> None:
        """End by Unreachable when the connection is lost for ever: this process can do nothing without it."""
        while True:
            if why := self.dead:
                raise Unreachable(f"the connection to the bus is closed for ever: {why}")
            await asyncio.sleep(_LOOK)

    @contextlib.contextmanager
    def on_reconnect(self, act: Callable[[], None]) -> Iterator[None]:
        """Call `act` whenever the connection is back: the server may have forgotten things meanwhile."""
        with _listening(self._reconnected, act):
            yield

    @contextlib.contextmanager
    def on_disconnect(self, act: Callable[[], None]) -> Iterator[None]:
        """Call `act` whenever the connection is lost: we no longer get messages of the server."""
        with _listening(self._disconnected, act):
            yield

    def reconnected(self) -> None:
        self.clock.forget()
        for act in self._reconnected:
            act()

    def disconnected(self) -> None:
        self._lost_at = time.monotonic()
        self.requests.lose()
        for act in self._disconnected:
            act()

    @property
    def clustered(self) -> bool:
        """Whether the server is one of several: then only the leader of a stream knows what is newest."""
        return bool(self.client._server_info.get("cluster"))

    async def ask(
        self,
        what: str,
        subject: str,
        data: bytes,
        timeout: float = TIMEOUT,
        headers: Headers | None = None,
        *,
        repeat: bool = False,
    ) -> Msg:
        """The answer to one question. With `repeat` it does no harm to ask twice.

        In a cluster there is nobody to answer for a moment while another leader is chosen.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout
        with translated(what):
            while True:
                left = end - loop.time()
                patience = min(left, _REPEAT) if repeat and self.clustered else left
                try:
                    return await self.requests.ask(
                        subject, data, patience, dict(headers) if headers else None
                    )
                except nats.errors.NoRespondersError:
                    if not self.clustered or loop.time() + _AGAIN >= end:
                        raise
                    await asyncio.sleep(_AGAIN)
                except nats.errors.TimeoutError:
                    if patience >= left:
                        raise

    async def api(
        self, what: str, request: object = None, timeout: float = TIMEOUT, *, repeat: bool = False
    ) -> dict[str, Any]:
        """Ask JetStream's API."""
        payload = b"" if request is None else orjson.dumps(request)
        end = time.monotonic() + timeout
        while True:
            left = max(end - time.monotonic(), _AGAIN)
            answer = await self.ask(what, f"$JS.API.{what}", payload, left, repeat=repeat)
            try:
                return answers.api(what, answer.data)
            except Unreachable:
                # Where there is no leader just now, the others say so.
                if not repeat or not self.clustered or time.monotonic() + _AGAIN >= end:
                    raise
                await asyncio.sleep(_AGAIN)

    async def publish(
        self,
        subject: str,
        data: bytes,
        headers: Headers | None = None,
        *,
        expect_last: int | None = None,
        timeout: float = TIMEOUT,
        repeat: bool = False,
    ) -> int | None:
        """Store a message and return its sequence, or None if the stream holds it already (by message id).

        With `expect_last` it is stored only if that is the last sequence of its subject. With `repeat` it
        does no harm to store it twice.
        """
        sent = dict(headers or {})
        if expect_last is not None:
            sent["Nats-Expected-Last-Subject-Sequence"] = str(expect_last)
        what = f"publish {subject}"
        answer = await self.ask(what, subject, data, timeout, sent, repeat=repeat)
        return answers.sequence(what, answer.data)

    async def last(self, stream: str, subject: str, timeout: float = TIMEOUT) -> Stored | None:
        """The last message of a subject."""
        return await self._get(stream, {"last_by_subj": subject}, f".{subject}", timeout)

    async def newest_of(self, stream: str, filter: str) -> int:
        """The sequence of the last message whose subject matches; 0 if there is none."""
        found = await self._get(stream, {"last_by_subj": filter})
        return found.sequence if found else 0

    async def newest(self, stream: str, filters: list[str], since: Since = 0) -> int:
        """What whoever reads from a server of a cluster has to have seen, lest it miss something.

        The sequence of the last message whose subject matches; 0 if there is none, or one server alone.
        """
        if not self.clustered:
            return 0
        found = [await self._from_leader(stream, {"last_by_subj": subject}) for subject in filters]
        return max((one.sequence for one in found if one and not _before(one, since)), default=0)

    async def first(self, stream: str, subject: str) -> Stored | None:
        """The oldest message whose subject matches."""
        return await self._get(stream, {"seq": 1, "next_by_subj": subject})

    async def has_since(self, stream: str, sequence: int, filter: str) -> bool:
        """Whether the stream holds any message of these subjects from this sequence on, even a forged one."""
        return await self._asked(stream, {"seq": sequence, "next_by_subj": filter}, "", TIMEOUT) is not None

    async def at(self, stream: str, sequence: int) -> Stored | None:
        """The message with this sequence, if the stream still holds it."""
        return await self._get(stream, {"seq": sequence})

    async def _get(
        self, stream: str, request: dict[str, Any], subject: str = "", timeout: float = TIMEOUT
    ) -> Stored | None:
        found = await self._asked(stream, request, subject, timeout)
        # Where writers name the sequence that they expect, they have to know that of a forged message.
        forged = found is not None and found.headers is answers.NOTHING
        return None if forged and not stream.startswith(_CONDITIONAL) else found

    async def _asked(
        self, stream: str, request: dict[str, Any], subject: str, timeout: float
    ) -> Stored | None:
        what = f"read {stream} {request}"
        if not self.clustered:
            payload = b"" if subject else orjson.dumps(request)
            answer = await self.ask(what, f"$JS.API.DIRECT.GET.{stream}{subject}", payload, timeout)
            return answers.direct(answer)
        # Of several servers any may answer a direct get, and may be behind.
        return await self._from_leader(stream, request, timeout)

    async def _from_leader(
        self, stream: str, request: dict[str, Any], timeout: float = TIMEOUT
    ) -> Stored | None:
        try:
            found = await self.api(f"STREAM.MSG.GET.{stream}", request, timeout, repeat=True)
        except ApiError as error:
            if error.gone:
                return None
            raise Unreachable(f"read {request}: {error}") from error
        return answers.from_leader(found["message"])

    async def now(self) -> float:
        """What time it is for the server that keeps what is due later, in seconds since 1970."""
        return await self.clock.now()

    async def _server_time(self) -> str:
        return str((await self.api("STREAM.INFO.LATER", repeat=True))["ts"])

    async def delete(self, stream: str, sequence: int) -> bool:
        """Take one message out of a stream; False if it was gone already."""
        request = {"seq": sequence, "no_erase": True}
        try:
            await self.api(f"STREAM.MSG.DELETE.{stream}", request, repeat=True)
        except ApiError as error:
            if error.gone:
                return False
            raise Unreachable(f"delete {stream} {sequence}: {error}") from error
        return True

    async def purge(self, stream: str, subject: str, before: int | None = None) -> None:
        """Take the messages of a subject out of a stream, only those before sequence `before` if given."""
        await self.api(f"STREAM.PURGE.{stream}", {"filter": subject} | ({"seq": before} if before else {}))

    async def close(self) -> None:
        self.closing = True
        with contextlib.suppress(nats.errors.Error, asyncio.TimeoutError, OSError):
            async with asyncio.timeout(TIMEOUT):
                await (self.client.drain() if self.connected else self.client.close())


@contextlib.contextmanager
def _listening(listeners: list[Callable[[], None]], act: Callable[[], None]) -> Iterator[None]:
    listeners.append(act)
    try:
        yield
    finally:
        listeners.remove(act)


def _before(stored: Stored, since: Since) -> bool:
    if isinstance(since, datetime):
        return instant(stored.time) < since.timestamp()
    return stored.sequence < since


@contextlib.asynccontextmanager
async def connected(access: Access, *, patience: float = 30.0) -> AsyncIterator[Bus]:
    """A connection to the bus that comes back by itself. Waits up to `patience` seconds for the first one."""
    access.check()
    bus = Bus(SecuredClient(access))
    await connecting.connect(bus, access, patience)
    try:
        yield bus
    finally:
        await bus.close()


@contextlib.contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn what nats raises into what this project raises."""
    try:
        yield
    except nats.errors.MaxPayloadError as error:
        raise Refused(f"{what}: larger than the server's max_payload") from error
    except (TimeoutError, nats.errors.Error, OSError) as error:
        raise Unreachable(f"{what}: {str(error) or type(error).__name__}") from error
