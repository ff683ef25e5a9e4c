"""The connection to the NATS server: requests to JetStream, and what happens when it is lost or back."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import datetime
from typing import Any

import nats.errors
import orjson
from nats.aio.msg import Msg

from bus import subjects
from bus.transport import answers
from bus.transport.access import SecuredClient, untrusted
from bus.transport.answers import ApiError, Full, Headers, Occupied, Stored, WrongSequence
from bus.transport.directclient import DirectClient, Requests
from bus.transport.finishing import check_cancelled
from windowbox.errors import Refused, Unreachable, WindowboxError
from windowbox.settings.bussettings import Access

__all__ = [
    "TIMEOUT", "ApiError", "Bus", "Full", "Headers", "Occupied", "Since", "Stored", "WrongSequence",
    "connected", "instant", "translated",
]  # fmt: skip

logger = logging.getLogger(__name__)

Since = int | datetime
"""Where a reading begins: a sequence or a time."""

TIMEOUT = 5.0
"""Seconds to wait for an answer of the server."""

_LOOK = 1.0

_AGAIN = 0.05
_CONDITIONAL = ("INTENTS", "TRIGGERS", "KV_")
"""Prefixes of the streams whose writers name the last sequence of a subject."""
_REPEAT = 1.0
"""Seconds after which an idempotent request is repeated: the leader that got it may have been deposed."""
_VIOLATION = re.compile(r'permissions violation for (\w+) to "([^"]+)"', re.IGNORECASE)
_UNKNOWN_USER = "authorization violation"
_FORBIDDEN = (
    "the bus at %s forbids user %r to %s to %s: use the user made for this role, "
    "or bring the rights in the server's configuration up to date"
)


class Bus:
    """A connection to the bus that lives as long as the process."""

    def __init__(self, client: DirectClient) -> None:
        self.client = client
        self.requests = Requests(client)

        async def server_time() -> str:
            return str((await self.api("STREAM.INFO.LATER", repeat=True))["ts"])

        self.clock = ServerClock(server_time)
        self._reconnected: list[Callable[[], None]] = []
        self._disconnected: list[Callable[[], None]] = []
        self._lost_at: float | None = None
        self.long_reading = asyncio.Lock()
        """Held by one of the readings that the server sends in portions: those of several could be more than
        it keeps for a connection, and it would cut this one."""
        self._proving = asyncio.Lock()
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
        """Why the connection will never come back; empty if it may."""
        if self.client.is_closed:
            return str(self.client.last_error or "it was closed")
        # nats-py reconnects in a task of its own, which an unexpected error may end.
        task = self.client._reconnection_task
        if self.client.is_reconnecting and task is not None and task.done():
            error = None if task.cancelled() else task.exception()
            return f"connecting again ended: {error!r}"
        return ""

    async def watch(self) -> None:
        """Raise Unreachable when the connection is lost for ever: this process can do nothing without it."""
        while True:
            if why := self.dead:
                raise Unreachable(f"the connection to the bus is closed for ever: {why}")
            await asyncio.sleep(_LOOK)

    def on_reconnect(self, act: Callable[[], None]) -> contextlib.AbstractContextManager[None]:
        """Call `act` whenever the connection is back: the server may have forgotten things meanwhile."""
        return _listening(self._reconnected, act)

    def on_disconnect(self, act: Callable[[], None]) -> contextlib.AbstractContextManager[None]:
        """Call `act` whenever the connection is lost: the server's messages no longer arrive."""
        return _listening(self._disconnected, act)

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
        """Whether the server is one of several: then only the leader of a stream has its newest messages."""
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
        """The response to one request. With `repeat`, the request is idempotent.

        In a cluster no server responds for a moment while another leader is elected.
        """
        sent = dict(headers) if headers else None
        try:
            if not self.clustered:
                return await self.requests.ask(subject, data, timeout, sent)
            return await self._ask_cluster(subject, data, timeout, sent, repeat=repeat)
        except (TimeoutError, nats.errors.Error, OSError) as error:
            raise translation(what, error) from error

    async def _ask_cluster(
        self, subject: str, data: bytes, timeout: float, headers: dict[str, str] | None, *, repeat: bool
    ) -> Msg:
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout
        while True:
            left = end - loop.time()
            patience = min(left, _REPEAT) if repeat else left
            try:
                return await self.requests.ask(subject, data, patience, headers)
            except nats.errors.NoRespondersError:
                if loop.time() + _AGAIN >= end:
                    raise
                await asyncio.sleep(_AGAIN)
            except nats.errors.TimeoutError:
                if patience >= left:
                    raise

    async def api(
        self, what: str, request: object = None, timeout: float = TIMEOUT, *, repeat: bool = False
    ) -> dict[str, Any]:
        """The response of JetStream's API. Raises ApiError if the server refuses the request."""
        payload = b"" if request is None else orjson.dumps(request)
        end = time.monotonic() + timeout
        while True:
            left = max(end - time.monotonic(), _AGAIN)
            answer = await self.ask(what, f"$JS.API.{what}", payload, left, repeat=repeat)
            try:
                return answers.api(what, answer.data)
            except Unreachable:
                # The other servers say that there is no leader at the moment.
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

        With `expect_last`, WrongSequence unless that is the last sequence of its subject. With `repeat`, it
        may be stored twice.
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

    async def alive(self, since: float, ask: Callable[[], Awaitable[object]]) -> float:
        """When a request was sent that the server has answered, `since` that time or later.

        Calls `ask` to send one, unless another request proves it. Of many callers at once, one asks.
        """
        async with self._proving:
            if self.requests.answered < since:
                await ask()
            return self.requests.answered

    async def newest_of(self, stream: str, filter: str) -> int:
        """The sequence of the last message whose subject matches; 0 if there is none."""
        found = await self._get(stream, {"last_by_subj": filter})
        return found.sequence if found else 0

    async def newest(self, stream: str, filters: list[str], since: Since = 0) -> int:
        """The sequence that a reader has to reach, lest a server that lags hides messages from it.

        That of the last message whose subject matches; 0 if there is none, or for a single server.
        """
        if not self.clustered:
            return 0
        last = await asyncio.gather(*(self._from_leader(stream, {"last_by_subj": one}) for one in filters))

        def is_read(one: Stored) -> bool:
            return (
                instant(one.time) >= since.timestamp()
                if isinstance(since, datetime)
                else one.sequence >= since
            )

        return max((one.sequence for one in last if one and is_read(one)), default=0)

    async def first(self, stream: str, subject: str, since: int = 1) -> Stored | None:
        """The oldest message whose subject matches, from this sequence on."""
        return await self._get(stream, {"seq": since, "next_by_subj": subject})

    async def has_since(self, stream: str, sequence: int, filter: str) -> bool:
        """Whether the stream holds any message of these subjects from this sequence on, even a forged one."""
        return await self._asked(stream, {"seq": sequence, "next_by_subj": filter}, "", TIMEOUT) is not None

    async def subjects(self, stream: str, filter: str) -> set[str]:
        """The subjects with messages that match. One that comes or goes meanwhile may be missing."""
        found: set[str] = set()
        while True:
            request = {"subjects_filter": filter, "offset": len(found)}
            info = await self.api(f"STREAM.INFO.{stream}", request, repeat=True)
            page = info["state"].get("subjects") or {}
            found |= page.keys()
            if not page or len(found) >= int(info.get("total", 0)):
                return found

    async def at(self, stream: str, sequence: int) -> Stored | None:
        """The message with this sequence, if the stream still holds it."""
        return await self._get(stream, {"seq": sequence})

    async def _get(
        self, stream: str, request: dict[str, Any], subject: str = "", timeout: float = TIMEOUT
    ) -> Stored | None:
        found = await self._asked(stream, request, subject, timeout)
        # Writers that name the sequence that they expect have to know that of a forged message.
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
        """The time of the server that fires schedules, in seconds since 1970."""
        return await self.clock.now()

    async def delete(self, stream: str, sequence: int) -> bool:
        """Delete one message of a stream; False if it was deleted already."""
        request = {"seq": sequence, "no_erase": True}
        try:
            await self.api(f"STREAM.MSG.DELETE.{stream}", request, repeat=True)
        except ApiError as error:
            if error.gone:
                return False
            raise Unreachable(f"delete {stream} {sequence}: {error}") from error
        return True

    async def purge(self, stream: str, subject: str, before: int | None = None) -> None:
        """Delete the messages of a subject, if `before` is given only those before this sequence."""
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


class _Callbacks:
    """The callbacks of nats-py for a lost connection, a new one, and errors."""

    def __init__(self, bus: Bus, access: Access) -> None:
        self._bus = bus
        self._access = access
        self.entered = False
        self.last_error: Exception | None = None
        self._distrust = ""
        """The last error about trust that was logged."""

    async def reconnected(self) -> None:
        self._distrust = ""
        logger.info("the bus is back at %s", self._access.url)
        self._bus.reconnected()

    async def disconnected(self) -> None:
        if not self.entered:
            return
        if self._bus.client.is_closed:
            if not self._bus.closing:
                logger.error("the bus at %s has ended the connection: %s", self._access.url, self._bus.dead)
        else:
            logger.warning("lost the bus at %s; connecting again", self._access.url)
        self._bus.disconnected()

    async def failed(self, error: Exception) -> None:
        first, self.last_error = self.last_error is None, error
        url, user = self._access.url, self._access.user
        if violation := _VIOLATION.search(str(error)):
            # The server never responds to a forbidden request: it ends with a timeout.
            act = "subscribe" if violation[1].lower() == "subscription" else "publish"
            logger.error(_FORBIDDEN, url, user, act, violation[2])
        elif not self.entered and _UNKNOWN_USER in str(error).lower():
            # An error raised here ends nats-py's attempts to connect, which would otherwise never end.
            check = "nats.creds" if self._access.creds else "its password"
            raise Refused(f"the bus at {url} refuses user {user!r}: check {check}") from error
        elif why := untrusted(error):
            text = f"the bus at {url} {why}"
            # Of several servers only one may be wrong.
            if not self.entered and len(self._access.servers) == 1:
                raise Refused(text) from error
            if text != self._distrust:
                logger.error(text)
            self._distrust = text
        elif first and not self.entered:
            logger.info("the bus at %s cannot be reached yet: %s", url, error)
        else:
            logger.debug("bus: %s", error)


@contextlib.asynccontextmanager
async def connected(access: Access, *, patience: float = 30.0) -> AsyncIterator[Bus]:
    """A connection to the bus that comes back by itself. Waits up to `patience` seconds for the first one."""
    access.check()
    bus = Bus(SecuredClient(access))
    callbacks = _Callbacks(bus, access)
    try:
        try:
            async with asyncio.timeout(patience):
                await bus.client.connect(
                    servers=access.servers,
                    user=None if access.creds else access.user,
                    password=access.password,
                    user_jwt_cb=access.jwt if access.creds else None,
                    signature_cb=access.sign if access.creds else None,
                    name=access.name,
                    inbox_prefix=subjects.inbox(access.user),
                    allow_reconnect=True,
                    max_reconnect_attempts=-1,
                    reconnect_time_wait=0.2,  # type: ignore[arg-type]  # seconds; a fraction works
                    connect_timeout=2,
                    ping_interval=10,
                    max_outstanding_pings=2,
                    reconnected_cb=callbacks.reconnected,
                    disconnected_cb=callbacks.disconnected,
                    error_cb=callbacks.failed,
                    flush_timeout=2,
                    skip_subject_validation=True,  # `subjects` has escaped them
                )
            check_cancelled()
            callbacks.entered = True
        except (TimeoutError, nats.errors.Error, OSError) as error:
            why = callbacks.last_error or error
            if text := untrusted(why):
                raise Refused(f"the bus at {access.url} {text}") from error
            raise Unreachable(
                f"the bus at {access.url} cannot be reached: {str(why) or type(why).__name__}; "
                "start it, or correct nats.url"
            ) from error
        yield bus
    finally:
        await bus.close()


@contextlib.contextmanager
def translated(what: str) -> Iterator[None]:
    """Raise this project's errors in place of nats-py's."""
    try:
        yield
    except (TimeoutError, nats.errors.Error, OSError) as error:
        raise translation(what, error) from error


def translation(what: str, error: Exception) -> WindowboxError:
    """This project's error for one of nats-py's."""
    if isinstance(error, nats.errors.MaxPayloadError):
        return Refused(f"{what}: larger than the server's max_payload")
    return Unreachable(f"{what}: {str(error) or type(error).__name__}")


_FRESH = 60.0
"""Seconds for which one answer of the server is valid."""
_STEP = 0.25
"""Seconds by which our clock may have been set, before the server is asked again."""


def instant(time_of_server: str) -> float:
    """A time as the server spells it, as seconds since 1970."""
    return datetime.fromisoformat(time_of_server[:26].rstrip("Z") + "+00:00").timestamp()


class ServerClock:
    """The server's clock: our own plus a difference that is measured now and then."""

    def __init__(self, ask: Callable[[], Awaitable[str]]) -> None:
        self._ask = ask
        self._ahead: float | None = None
        self._asked = 0.0
        self._wall = 0.0

    def forget(self) -> None:
        """Measure again at the next use: another server may answer from now on."""
        self._asked = 0.0

    async def now(self) -> float:
        """Seconds since 1970, for the server."""
        passed = time.monotonic() - self._asked
        # The wall clock and the monotonic clock diverge when the wall clock is set.
        was_set = abs(time.time() - self._wall - passed) > _STEP
        if self._ahead is None or not self._asked or passed > _FRESH or was_set:
            try:
                server_time = instant(await self._ask())
                self._wall, self._asked = time.time(), time.monotonic()
                self._ahead = server_time - self._wall
            except WindowboxError:
                if self._ahead is None:
                    raise
        return time.time() + self._ahead

    def rough(self) -> float:
        """The same without asking: our own time, until the server was asked once."""
        return time.time() + (self._ahead or 0.0)
