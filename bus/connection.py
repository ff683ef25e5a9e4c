"""The connection to the NATS server: requests by hand, since every object passes here several times."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import nats
import nats.errors
import orjson
from nats.aio.client import Client
from nats.aio.msg import Msg

from bus import subjects
from bus.requests import Requests
from windowbox.errors import Conflict, Refused, TransientError, Unreachable, WindowboxError

logger = logging.getLogger(__name__)

TIMEOUT = 5.0
"""Seconds to wait for an answer of the server."""

_LOOK = 1.0

_WRONG_LAST_SEQUENCE = 10071
_SUBJECT_FULL = 10077

_VIOLATION = re.compile(r'permissions violation for (\w+) to "([^"]+)"', re.IGNORECASE)
_UNKNOWN = "authorization violation"
_FORBIDDEN = (
    "the bus at %s forbids user %r to %s to %s: use the user made for this role, "
    "or bring the rights in the server's configuration up to date"
)

Headers = Mapping[str, str]


class ApiError(WindowboxError):
    """JetStream said no; the code tells why."""

    def __init__(self, what: str, error: Mapping[str, Any]) -> None:
        super().__init__(f"{what}: {error.get('description', error)}")
        self.code = int(error.get("err_code", 0))


class WrongSequence(Conflict):
    """Somebody else has written to this subject since we looked."""


class Occupied(Conflict):
    """The subject holds all that it may hold: for a queue this means that the item waits already."""


class Stored(NamedTuple):
    """A message of a stream."""

    subject: str
    sequence: int
    time: str
    headers: Headers
    data: bytes


@dataclass(frozen=True)
class Access:
    """Where the bus is, and as whom to enter."""

    url: str
    user: str | None = None
    password: str | None = None
    name: str = "windowbox"


class Bus:
    """A connection to the bus, kept as long as the process lives."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.requests = Requests(client)
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
        """Call `act` whenever the connection is lost: what the server does from now on, we do not hear."""
        with _listening(self._disconnected, act):
            yield

    def reconnected(self) -> None:
        for act in self._reconnected:
            act()

    def disconnected(self) -> None:
        self._lost_at = time.monotonic()
        self.requests.lose()
        for act in self._disconnected:
            act()

    async def api(self, what: str, request: object = None, timeout: float = TIMEOUT) -> dict[str, Any]:
        """Ask JetStream's API."""
        payload = b"" if request is None else orjson.dumps(request)
        with translated(what):
            answer = await self.requests.ask(f"$JS.API.{what}", payload, timeout)
        decoded: dict[str, Any] = orjson.loads(answer.data)
        if "error" in decoded:
            raise ApiError(what, decoded["error"])
        return decoded

    async def publish(
        self,
        subject: str,
        data: bytes,
        headers: Headers | None = None,
        *,
        expect_last: int | None = None,
    ) -> int | None:
        """Store a message and return its sequence, or None if the stream holds it already (by message id).

        With `expect_last` it is stored only if that is the last sequence of its subject.
        """
        sent = dict(headers or {})
        if expect_last is not None:
            sent["Nats-Expected-Last-Subject-Sequence"] = str(expect_last)
        with translated(f"publish {subject}"):
            answer = await self.requests.ask(subject, data, TIMEOUT, sent or None)
        ack = orjson.loads(answer.data)
        if error := ack.get("error"):
            match error.get("err_code"):
                case code if code == _WRONG_LAST_SEQUENCE:
                    raise WrongSequence(f"publish {subject}: {error['description']}")
                case code if code == _SUBJECT_FULL:
                    raise Occupied(f"publish {subject}: {error['description']}")
                case _:
                    raise TransientError(f"publish {subject}: {error.get('description')}")
        return None if ack.get("duplicate") else int(ack["seq"])

    async def last(self, stream: str, subject: str, timeout: float = TIMEOUT) -> Stored | None:
        """The last message of a subject."""
        with translated(f"read {subject}"):
            answer = await self.requests.ask(f"$JS.API.DIRECT.GET.{stream}.{subject}", b"", timeout)
        return _stored(answer)

    async def first(self, stream: str, subject: str) -> Stored | None:
        """The oldest message whose subject matches."""
        payload = orjson.dumps({"seq": 1, "next_by_subj": subject})
        with translated(f"read {subject}"):
            answer = await self.requests.ask(f"$JS.API.DIRECT.GET.{stream}", payload, TIMEOUT)
        return _stored(answer)

    async def at(self, stream: str, sequence: int) -> Stored | None:
        """The message with this sequence, if the stream still holds it."""
        payload = b'{"seq":%d}' % sequence
        with translated(f"read {stream} {sequence}"):
            answer = await self.requests.ask(f"$JS.API.DIRECT.GET.{stream}", payload, TIMEOUT)
        return _stored(answer)

    async def delete(self, stream: str, sequence: int) -> bool:
        """Take one message out of a stream; False if it was gone already."""
        try:
            await self.api(f"STREAM.MSG.DELETE.{stream}", {"seq": sequence, "no_erase": True})
        except ApiError:
            return False
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


def instant(time_of_server: str) -> float:
    """A time as the server spells it, as seconds since 1970."""
    return datetime.fromisoformat(time_of_server[:26].rstrip("Z") + "+00:00").timestamp()


@contextlib.asynccontextmanager
async def connected(access: Access, *, patience: float = 30.0) -> AsyncIterator[Bus]:
    """A connection to the bus that comes back by itself. Waits up to `patience` seconds for the first one."""
    bus = Bus(Client())
    await _connect(bus, access, _Fate(bus, access), patience)
    try:
        yield bus
    finally:
        await bus.close()


class _Fate:
    """What becomes of a connection, told to the log and to those whom it concerns."""

    def __init__(self, bus: Bus, access: Access) -> None:
        self._bus = bus
        self._access = access
        self.entered = False
        self.last_error: Exception | None = None

    async def reconnected(self) -> None:
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
        text = str(error)
        if violation := _VIOLATION.search(text):
            # The request itself is never answered, and ends as one that took too long.
            act = "subscribe" if violation[1].lower() == "subscription" else "publish"
            logger.error(_FORBIDDEN, self._access.url, self._access.user, act, violation[2])
        elif not self.entered and _UNKNOWN in text.lower():
            # Raised from here it ends nats-py's connecting, which would otherwise go on for ever.
            raise Refused(
                f"the bus at {self._access.url} refuses user {self._access.user!r}: check its password"
            ) from error
        elif first and not self.entered:
            logger.info("the bus at %s cannot be reached yet: %s", self._access.url, text)
        else:
            logger.debug("bus: %s", error)


async def _connect(bus: Bus, access: Access, fate: _Fate, patience: float) -> None:
    try:
        async with asyncio.timeout(patience):
            await bus.client.connect(
                servers=access.url.split(","),
                user=access.user,
                password=access.password,
                name=access.name,
                inbox_prefix=subjects.inbox(access.user),
                allow_reconnect=True,
                max_reconnect_attempts=-1,
                reconnect_time_wait=0.2,  # type: ignore[arg-type]  # seconds, and a fraction will do
                connect_timeout=2,
                ping_interval=10,
                max_outstanding_pings=2,
                reconnected_cb=fate.reconnected,
                disconnected_cb=fate.disconnected,
                error_cb=fate.failed,
                flush_timeout=2,
                skip_subject_validation=True,  # they are spelled in one place, and escaped there
            )
        fate.entered = True
    except (TimeoutError, nats.errors.Error, OSError) as error:
        why = fate.last_error or error
        raise Unreachable(
            f"the bus at {access.url} cannot be reached: {str(why) or type(why).__name__}; "
            "start it, or correct nats.url"
        ) from error
    finally:
        if not fate.entered:
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


def _stored(answer: Msg) -> Stored | None:
    headers = answer.headers or {}
    if "Nats-Sequence" not in headers:
        return None
    return Stored(
        headers["Nats-Subject"],
        int(headers["Nats-Sequence"]),
        headers["Nats-Time-Stamp"],
        headers,
        answer.data,
    )
