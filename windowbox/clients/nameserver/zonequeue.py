"""The queue of one zone: batches of changes over one connection."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from dns.message import Message

from windowbox.clients.nameserver import connection as connections
from windowbox.clients.nameserver.batches import BatchSender, Counters, probe
from windowbox.clients.nameserver.changes import Change, ChangeQueue, Item
from windowbox.clients.nameserver.classify import Failure, ZoneFailed
from windowbox.clients.nameserver.connection import Connection, TimedOut
from windowbox.clients.nameserver.tsig import TsigKey
from windowbox.errors import Unreachable
from windowbox.settings.dnssettings import DnsSettings, ZoneSettings, split_server

logger = logging.getLogger(__name__)

IN_FLIGHT = 2
"""While one message is in flight the next one gathers; a third would only wait in the server."""
LOOK_INTERVAL = 15.0
"""BIND ends connections that were idle for 30 s."""
UNUSED_AFTER = 600.0
LONGEST_PROBE_INTERVAL = 600.0
FIRST_DELAY, LONGEST_DELAY = 0.2, 30.0
MOST_LOSSES = 3
"""Connections that may be lost under one change before it fails."""


@dataclass(frozen=True, slots=True)
class ZoneStats:
    """What a zone's queue has done and how it is, for metrics."""

    zone: str
    messages: int
    rrsets: int
    bisections: int
    reconnections: int
    waiting: int
    in_flight: int
    last_rtt: float
    connected: bool
    breaker_open: bool


Question = Callable[[Connection], Awaitable[list[Message]]]


class ZoneQueue:
    """Sends at once when nothing is in flight, and gathers meanwhile: batches without a waiting window.

    One connection keeps the order of changes; a name under way waits until its outcome is known.
    """

    def __init__(
        self,
        zone: ZoneSettings,
        key: TsigKey | None,
        settings: DnsSettings,
        announce: Callable[[str], None],
        *,
        kept: bool,
    ) -> None:
        self._zone = zone
        self._key = key
        self._settings = settings
        self._announce = announce
        self._kept = kept
        self._changes = ChangeQueue()
        self._counters = Counters()
        self._wake = asyncio.Event()
        self._up = asyncio.Event()
        self._route = _Route(zone.servers)
        self._task: asyncio.Task[None] | None = None
        self._connection: Connection | None = None
        self._hosts: frozenset[str] = frozenset()
        self._serial: int | None = None
        self._outage: Failure | None = None
        self._away: Failure | None = None
        self._probe_interval = settings.probe_interval
        self._refusals = 0
        """Servers in a row that were reached, but refuse changes of the zone."""
        self._most = zone.max_rrsets
        self._in_flight = 0
        self._connections = 0
        self._next_look = 0.0
        self._last_use = 0.0

    def start(self) -> None:
        """Connect, and stay connected. Does nothing if that is so already."""
        self._last_use = asyncio.get_running_loop().time()
        if not self.running:
            self._away = None
            self._up.clear()
            self._task = asyncio.create_task(self._run(), name=f"name server of {self._zone.name}")
            self._task.add_done_callback(self._stopped)

    @property
    def running(self) -> bool:
        return self._task is not None and not self._task.done()

    async def submit(self, change: Change) -> None:
        """Return when the change, or a newer one of the same records, is proved."""
        self.start()
        await self._changes.room()
        if not self.running:
            raise self._closed().error()
        if problem := self._outage or self._away:
            raise problem.error()
        waiter = asyncio.get_running_loop().create_future()
        self._changes.add(change, waiter)
        self._wake.set()
        await waiter

    async def ask(self, question: Question) -> list[Message]:
        """The answers to a question, asked again if the connection ends meanwhile.

        Raises Unreachable if the server stays away for too long.
        """
        self.start()
        try:
            try:
                return await question(await self._connected())
            except Unreachable:
                return await question(await self._connected())
        except ZoneFailed as failed:
            raise failed.failure.error() from failed

    def stats(self) -> ZoneStats:
        return ZoneStats(
            zone=self._zone.name,
            messages=self._counters.messages,
            rrsets=self._counters.rrsets,
            bisections=self._counters.bisections,
            reconnections=max(0, self._connections - 1),
            waiting=self._changes.size,
            in_flight=self._in_flight,
            last_rtt=self._counters.last_rtt,
            connected=self.running and self._up.is_set(),
            breaker_open=self._outage is not None,
        )

    async def aclose(self) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _connected(self) -> Connection:
        if self._away:
            raise self._away.error()
        try:
            async with asyncio.timeout(self._settings.patience):
                await self._up.wait()
        except TimeoutError:
            raise (self._away or self._silence()).error() from None
        if self._away:
            raise self._away.error()
        assert self._connection is not None
        return self._connection

    def _closed(self) -> Failure:
        return Failure(Unreachable, f"the queue of zone {self._zone.name} was closed")

    def _silence(self) -> Failure:
        return Failure(Unreachable, f"no server of zone {self._zone.name} could be reached in time")

    def _stopped(self, task: asyncio.Task[None]) -> None:
        """Fail all waiters when the queue has ended, for whatever reason."""
        if self._connection:
            self._connection.close()
        self._away = self._closed()
        self._changes.fail_all(self._away)
        self._up.set()  # wakes those who wait for a connection, to be told
        if not task.cancelled() and (error := task.exception()):
            logger.error("zone %s: its queue failed", self._zone.name, exc_info=error)

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as senders:
            while not self._unused():
                self._connection = await self._connect()
                try:
                    await self._serve(self._connection, senders)
                finally:
                    self._up.clear()
                    self._connection.close()

    def _unused(self) -> bool:
        idle = asyncio.get_running_loop().time() - self._last_use > UNUSED_AFTER
        return idle and not self._kept and not self._changes.size and not self._in_flight

    async def _connect(self) -> Connection:
        """A connection, however long it takes. After a while waiting and new changes fail."""
        loop = asyncio.get_running_loop()
        given_up = loop.time() + self._settings.patience
        delay = FIRST_DELAY
        while True:
            try:
                return await self._attempt()
            except Unreachable as error:
                left = given_up - loop.time()
                if left <= 0:
                    self._stay_away(Failure(Unreachable, str(error), retry_after=delay))
                pause = delay * random.uniform(0.5, 1)
                await asyncio.sleep(min(pause, left) if left > 0 else pause)
                delay = min(2 * delay, LONGEST_DELAY)

    async def _attempt(self) -> Connection:
        connection = await self._route.connect(self._key, self._settings.message_timeout)
        connection.ended.add_done_callback(lambda _: self._wake.set())
        await self._look(connection)
        if not connection.alive:
            raise connection.ended.result()
        return connection

    def _stay_away(self, failure: Failure) -> None:
        if self._away is None:
            logger.warning("zone %s: %s", self._zone.name, failure.text)
        self._away = failure
        self._changes.fail_all(failure)

    async def _serve(self, connection: Connection, senders: asyncio.TaskGroup) -> None:
        started = asyncio.get_running_loop().time()
        self._welcome()
        while connection.alive and not self._unused():
            self._wake.clear()
            self._launch(connection, senders)
            try:
                async with asyncio.timeout_at(self._next_look):
                    await self._wake.wait()
            except TimeoutError:
                await self._look_again(connection)
        await self._not_too_fast(started)

    def _welcome(self) -> None:
        self._away = None
        self._connections += 1
        self._up.set()
        if self._connections > 1:
            self._announce(self._zone.name)

    async def _not_too_fast(self, started: float) -> None:
        """Back off from a server that closes each new connection at once."""
        self._up.clear()
        if asyncio.get_running_loop().time() - started < 1:
            await asyncio.sleep(FIRST_DELAY)

    def _launch(self, connection: Connection, senders: asyncio.TaskGroup) -> None:
        while self._in_flight < IN_FLIGHT and self._changes.size and connection.alive:
            batch = self._changes.take(self._most, self._zone.max_octets)
            if not batch:
                return
            self._in_flight += 1
            self._last_use = asyncio.get_running_loop().time()
            senders.create_task(self._send_batch(connection, batch), name=f"batch for {self._zone.name}")

    async def _send_batch(self, connection: Connection, batch: list[Item]) -> None:
        sender = BatchSender(connection, self._zone.name, self._hosts, self._counters)
        try:
            await sender.send([item for item in batch if not item.abandoned])
            self._most = min(self._zone.max_rrsets, self._most + 10)
        except Unreachable as error:
            connection.close(error)
            self._lost(batch, error)
        except ZoneFailed as failed:
            self._open_breaker(failed.failure)
            _fail(batch, failed.failure)
        except BaseException:
            _fail(batch, self._closed())
            raise
        finally:
            self._in_flight -= 1
            self._changes.release(batch)
            self._wake.set()

    def _lost(self, batch: list[Item], error: Unreachable) -> None:
        """Requeue what was in flight: it may have happened, and repeating it is harmless."""
        if isinstance(error, TimedOut):
            self._most = max(1, self._most // 2)
        open_items = [item for item in batch if not item.settled and not item.abandoned]
        for item in open_items:
            item.losses += 1
        _fail([item for item in open_items if item.losses >= MOST_LOSSES], Failure(Unreachable, str(error)))
        self._changes.requeue(item for item in open_items if not item.settled)

    async def _look(self, connection: Connection) -> None:
        """Check the health of the zone, and keep the connection from idling."""
        try:
            apex = await probe(connection, self._zone.name)
        except Unreachable as error:
            connection.close(error)
        except ZoneFailed as failed:
            self._refusals += 1
            if self._refusals < self._route.servers:
                connection.close(Unreachable(failed.failure.text))
            else:
                self._open_breaker(failed.failure)
        else:
            self._refusals = 0
            self._next_look = asyncio.get_running_loop().time() + LOOK_INTERVAL
            self._close_breaker()
            self._compare_serial(apex.serial)
            self._hosts = apex.hosts

    async def _look_again(self, connection: Connection) -> None:
        if self._outage is not None and self._route.servers > 1:
            self._refusals = 0
            connection.close(Unreachable(self._outage.text))  # another server may work
        else:
            await self._look(connection)

    def _compare_serial(self, serial: int) -> None:
        before, self._serial = self._serial, serial
        if before is not None and (serial - before) % 2**32 >= 2**31:
            logger.warning("zone %s went back from serial %s to %s", self._zone.name, before, serial)
            self._announce(self._zone.name)

    def _open_breaker(self, failure: Failure) -> None:
        """No change can succeed now: fail all waiters, and probe with back-off (a circuit breaker)."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._next_look and self._outage is not None:
            return
        if self._outage is None:
            self._probe_interval = self._settings.probe_interval
            logger.error("zone %s: %s", self._zone.name, failure.text)
        self._outage = replace(failure, retry_after=self._probe_interval)
        self._next_look = loop.time() + self._probe_interval
        self._probe_interval = min(2 * self._probe_interval, LONGEST_PROBE_INTERVAL)
        self._changes.fail_all(self._outage)

    def _close_breaker(self) -> None:
        if self._outage is not None:
            logger.info("zone %s takes changes again", self._zone.name)
        self._outage = None


class _Route:
    """The addresses of a zone's servers, all in turn."""

    def __init__(self, servers: Sequence[str]) -> None:
        self._servers = list(servers)
        self._untried: list[tuple[str, str, int]] = []

    @property
    def servers(self) -> int:
        return len(self._servers)

    async def connect(self, key: TsigKey | None, timeout: float) -> Connection:
        if not self._untried:
            server = self._servers[0]
            self._servers = [*self._servers[1:], server]
            found = await connections.addresses(*split_server(server))
            self._untried = [(server, host, port) for host, port in found]
        server, host, port = self._untried.pop(0)
        return await connections.connected(host, port, server, key, timeout)


def _fail(items: Sequence[Item], failure: Failure) -> None:
    for item in items:
        if not item.settled:
            item.fail(failure)
